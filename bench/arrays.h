#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "bench/case.h"
#include "bench/documents.h"
#include "core/problem.h"
#include "plan/plan.h"

namespace keel::bench {

// Memory aligned to a cache line, 64 bytes, and written to once so that it is resident.
class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(std::int64_t bytes);
  std::byte* data() const { return data_.get(); }
  std::int64_t bytes() const { return bytes_; }

 private:
  struct Release {
    void operator()(std::byte* memory) const;
  };
  std::unique_ptr<std::byte, Release> data_;
  std::int64_t bytes_ = 0;
};

// The arrays of all cases. They share memory, one array per kind and dtype as large as the largest case needs, so that
// a run needs no more than its largest case. Normally distributed values, the same for the same seed.
class Arrays {
 public:
  Arrays(std::span<const Case> cases, std::uint64_t seed);

  TensorView input(char name, const Case& c) const;  // 'q', 'k' or 'v'
  MutableTensorView output(const Case& c) const;
  TensorView dout(const Case& c) const;
  Tangents tangents(const Case& c) const;
  MutableTensorView moved(const Case& c) const;
  Gradients gradients(const Case& c) const;
  TensorView mask(const Case& c) const;
  MutableRowView row(int index, DType dtype, const Case& c) const;

 private:
  static constexpr int kRowArrays = 7;
  std::map<std::pair<char, DType>, Buffer> buffers_;  // 'o' is the output; derivatives have 'g', its gradient, and 'Q',
                                                      // 'K', 'V'; tangents 'x', 'y', 'z', 'O'
  Buffer mask_, rows_;
  std::int64_t most_rows_ = 0;
};

// A case bound to its arrays.
class Call {
 public:
  Call(const Case& c, const Arrays& arrays);
  void operator()();  // the whole of a call: checks, plan, kernel
  double flops();
  double bytes();  // of k and v, or what a merge reads and writes
  Plan plan();

 private:
  Problem problem();
  BackwardProblem backward_problem() const;
  TangentProblem tangent_problem() const;
  MergeProblem merge_problem() const;

  bool backward_, merge_, jvp_, twice_;
  std::array<Partial, 2> parts_;
  TensorView q_, k_, v_;
  MutableTensorView out_;
  Buffer table_, dtable_;     // the bias by distance, and its gradient
  Buffer own_out_, own_lse_;  // a backward pass has its own forward result, not shared with other cases
  BackwardInputs inputs_;
  Gradients gradients_;
  Tangents tangents_;
  MutableTensorView moved_;
  Options options_;
  Outputs outputs_;
  std::unique_ptr<Documents> documents_;
  std::vector<HeadStatistics> heads_;
  Forced forced_;
};

}  // namespace keel::bench
