#pragma once

#include <cstdint>
#include <string_view>

#include "keel/export.h"
#include "keel/nn/tensor.h"

namespace keel::nn {

// Random numbers as a function of (seed, stream, position) alone, by Philox: reproducible to the bit, and a run that
// resumes can seek() to where it was.
class KEEL_API Random {
 public:
  // Streams of different names are independent.
  explicit Random(std::uint64_t seed, std::string_view stream = "");

  std::uint64_t bits();                // uniform over 64 bits
  double uniform();                    // in (0, 1)
  std::int64_t below(std::int64_t n);  // 0 … n − 1

  Tensor normal(const Shape& shape, double sd = 1.0, double mean = 0.0, DType dtype = DType::f32);
  Tensor uniform(const Shape& shape, double low, double high, DType dtype = DType::f32);

  std::uint64_t place() const { return place_; }
  void seek(std::uint64_t place) { place_ = place; }

 private:
  std::uint64_t seed_, stream_, place_ = 0;
};

}  // namespace keel::nn
