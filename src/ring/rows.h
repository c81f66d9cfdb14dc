#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <vector>

#include "core/row_statistics.h"
#include "ring/geometry.h"

namespace keel::ring {

// out and the statistics of some rows, as merge() takes and gives them.
struct RowResults {
  MutableTensorView out{};
  Outputs outputs{};  // lse and row statistics

  Partial partial() const;
  RowResults slice(std::int64_t begin, std::int64_t end) const;
};

// Which statistics must be kept for a result: those that are wanted, and those that merging them, or summing up the
// rows of heads, needs.
using Kept = std::array<bool, kRowStatisticCount>;
Kept kept_for(const Outputs& wanted);

// Memory for the results of rows, in the type that sums are kept in: one piece, so that it can be sent.
class RowMemory {
 public:
  RowMemory() = default;
  RowMemory(const std::array<std::int64_t, 4>& out, DType sums, const Kept& kept);

  const RowResults& results() const { return results_; }
  std::byte* data() const { return memory_.get(); }
  std::int64_t bytes() const { return bytes_; }

  // The same layout elsewhere.
  RowResults at(std::byte* memory) const;

 private:
  std::array<std::int64_t, 4> shape_{};
  DType sums_ = DType::f32;
  Kept kept_{};
  std::int64_t bytes_ = 0;
  std::shared_ptr<std::byte[]> memory_;
  RowResults results_;
};

// `rows`, but with the caller's arrays where they are given and can hold sums.
RowResults with_callers(const RowResults& rows, const MutableTensorView& out, const Outputs& wanted);

// Joins results over different keys, and each head's sink for the rows that see a key, into `result`, which may be that
// of a part; `out` is the caller's, whatever its dtype.
void join(std::vector<Partial> parts, const RowResults& result, const MutableTensorView& out, const HeadView& sinks,
          int threads);

}  // namespace keel::ring
