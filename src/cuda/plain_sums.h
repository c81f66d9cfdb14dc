#pragma once

#include <cstdint>

#include "cuda/lanes.h"

namespace keel::cuda {

// Adds up very many numbers: chains of additions stay short, and so does the error.
class LongSum {
 public:
  KEEL_HD void add(double x) {
    short_ += x;
    if (++added_ < kShort) return;
    total_ += short_;
    short_ = added_ = 0;
  }
  KEEL_HD double value() const { return total_ + short_; }

  static constexpr int kShort = 512;

 private:
  double short_ = 0, total_ = 0;
  int added_ = 0;
};

// A term of a sum of rows: weight · row. What is hidden has none, and its row is never read.
template <class A>
struct Term {
  bool seen = false;
  A weight = 0;
};

// What sum_rows() sums over: terms t of [begin, end) in each of `groups` groups, and rows of `columns` columns.
struct SumExtent {
  std::int64_t groups = 1, begin = 0, end = 0, columns = 0;
};

// Σ weight · row over terms (g, t), column by column: put(c, sum) is called once for every column. Every lane asks
// term(g, t) for the weight of a term of its own; then all go through the terms together, each lane for its own
// columns, up to kColumns at a time. More columns than that ask for the terms again.
//
// Short sums are kept in A, long ones in double, so that the error does not grow with the number of terms.
template <class A, class Lanes, class TermOf, class RowOf, class Put>
KEEL_HD void sum_rows(const Lanes& lanes, const SumExtent& of, const TermOf& term, const RowOf& row, const Put& put) {
  constexpr int kColumns = 4;
  for (std::int64_t first = lanes.lane(); first - lanes.lane() < of.columns; first += kColumns * Lanes::kCount) {
    A sum[kColumns] = {};
    double total[kColumns] = {};
    int added = 0;
    for (std::int64_t g = 0; g < of.groups; ++g) {
      for (std::int64_t t = of.begin; t < of.end; t += Lanes::kCount) {
        const Term<A> own = t + lanes.lane() < of.end ? term(g, t + lanes.lane()) : Term<A>();
        const std::uint32_t seen = lanes.which(own.seen);
        for (int x = 0; x < Lanes::kCount; ++x) {
          if ((seen >> x & 1u) == 0) continue;
          const A weight = lanes.broadcast(own.weight, x);
          const auto values = row(g, t + x);
          KEEL_UNROLL
          for (int c = 0; c < kColumns; ++c) {
            const std::int64_t column = first + c * Lanes::kCount;
            if (column < of.columns) sum[c] += weight * values[column];
          }
        }
        added += Lanes::kCount;
        if (added < LongSum::kShort) continue;
        added = 0;
        KEEL_UNROLL
        for (int c = 0; c < kColumns; ++c) total[c] += sum[c], sum[c] = 0;
      }
    }
    KEEL_UNROLL
    for (int c = 0; c < kColumns; ++c) {
      const std::int64_t column = first + c * Lanes::kCount;
      if (column < of.columns) put(column, total[c] + sum[c]);
    }
  }
}

}  // namespace keel::cuda
