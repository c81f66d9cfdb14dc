#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <tuple>
#include <vector>

#include "bench/arrays.h"
#include "keel/dtype.h"

namespace keel::bench {

// The machine's limits, measured next to what is compared with them. Every measurement is kept.
class Yardsticks {
 public:
  // A measurement of the FMA rate lasts about `seconds`.
  explicit Yardsticks(double seconds) : seconds_(seconds) {}

  // FLOP/s of fused multiply-adds that touch only registers, on `threads` threads at once. For the two types that
  // kernels accumulate in, f32 and f64.
  double fma(DType dtype, std::int64_t target, int threads);

  // The same of the products of bf16 on the matrix unit that the machine multiplies them with.
  double unit(int threads);

  // Bytes/s of reading once, front to back, more memory than any cache holds; each thread has its own part.
  double read(std::int64_t target, int threads);

  // Bytes/s, read and written together, of adding one half of that memory to the other in place.
  double update(std::int64_t target, int threads);

  enum class What { fma, unit, read, update };
  struct Kind {
    What what = What::fma;
    DType dtype = DType::f32;  // of fma
    std::int64_t target = 0;
    int threads = 1;
    friend bool operator<(const Kind& a, const Kind& b) {
      return std::tie(a.what, a.dtype, a.target, a.threads) < std::tie(b.what, b.dtype, b.target, b.threads);
    }
  };
  const std::map<Kind, std::vector<double>>& measured() const { return measured_; }
  std::int64_t memory_bytes() const { return memory_.bytes(); }  // that read() and update() go through

 private:
  using Loop = std::function<double(std::int64_t steps)>;  // returns FLOPs
  double loop(const Kind& kind, const Loop& run);
  void take_memory();

  double seconds_;
  Buffer memory_;
  std::map<std::tuple<What, DType, std::int64_t>, std::int64_t> steps_;  // of a loop on one target, for seconds_
  std::map<Kind, std::vector<double>> measured_;
};

}  // namespace keel::bench
