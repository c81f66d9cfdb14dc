#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "conformance/array.h"
#include "conformance/dense.h"
#include "conformance/generator.h"
#include "core/problem.h"
#include "core/row_statistics.h"

namespace keel::conformance {

// What the oracle says of a merge, in float64. Computed before it, as a result may take the place of a part.
struct ExpectedMerge {
  Dense out, size;                             // size: of the terms that out is a sum of
  std::array<Dense, kRowStatisticCount> rows;  // those that are asked for
};
ExpectedMerge compute_expected(MergeProblem problem);

// "" or what differs from that in the results of a merge.
std::string merge_mismatch(const MergeProblem& problem, const ExpectedMerge& expected);

// A random call: parts with special values here and there, a result in memory of its own or in that of parts.
class MergeInstance {
 public:
  explicit MergeInstance(std::uint64_t seed) : MergeInstance(Generator(seed, 0x3E6)) {}
  explicit MergeInstance(Generator random);

  MergeProblem problem() const;

  // Every byte of the results, and of the parts, which must stay as they are where no result is in place.
  std::string bytes() const;

  std::string outside_writes() const;  // "" or what was written outside the results

 private:
  struct Part {
    Array out;
    std::array<Array, kRowStatisticCount> rows;
  };

  Array tensor(DType dtype, unsigned char paint);
  Array row(std::size_t statistic, unsigned char paint);
  double special(double value, double chance);
  void fill(Part& part);
  void place_results();

  const Array& out() const { return out_place_ ? parts_[*out_place_].out : out_; }
  const Array& result(std::size_t s) const { return row_place_[s] ? parts_[*row_place_[s]].rows[s] : rows_[s]; }

  Generator random_, values_;  // of what there is, and of the numbers in it
  Placement placement_ = Placement::aligned;
  std::array<std::int64_t, 4> shape_{};
  DType dtype_ = DType::f32, side_ = DType::f32;
  double spread_ = 1.0;  // of lse
  std::array<bool, kRowStatisticCount> wanted_{};
  std::vector<Part> parts_;
  Array out_;
  std::array<Array, kRowStatisticCount> rows_;
  std::optional<std::size_t> out_place_;
  std::array<std::optional<std::size_t>, kRowStatisticCount> row_place_;
};

}  // namespace keel::conformance
