#pragma once

#include <cstdint>

#include "cuda/lanes.h"

namespace keel::cuda {

// A term of a sum of rows: weight · row. What is hidden has none, and its row is never read.
template <class A>
struct Term {
  bool seen = false;
  A weight = 0;
};

// Σ_t weight_t · row_t over terms t of [begin, end), column by column: put(c, sum) is called once for every c below
// `columns`. Every lane asks term(t) for the weight of a term of its own; then all go through the terms together, each
// lane for its own columns, up to kColumns at a time. More columns than that ask for the terms again.
//
// Short sums are kept in A, long ones in double, so that the error does not grow with the number of terms.
template <class A, class Lanes, class TermOf, class RowOf, class Put>
KEEL_HD void sum_rows(const Lanes& lanes, std::int64_t begin, std::int64_t end, std::int64_t columns,
                      const TermOf& term, const RowOf& row, const Put& put) {
  constexpr int kColumns = 8, kShort = 512;
  for (std::int64_t first = lanes.lane(); first - lanes.lane() < columns; first += kColumns * Lanes::kCount) {
    A sum[kColumns] = {};
    double total[kColumns] = {};
    int added = 0;
    for (std::int64_t t = begin; t < end; t += Lanes::kCount) {
      const Term<A> own = t + lanes.lane() < end ? term(t + lanes.lane()) : Term<A>();
      const std::uint32_t seen = lanes.which(own.seen);
      for (int x = 0; x < Lanes::kCount && t + x < end; ++x) {
        if ((seen >> x & 1u) == 0) continue;
        const A weight = lanes.broadcast(own.weight, x);
        const auto values = row(t + x);
        KEEL_UNROLL
        for (int c = 0; c < kColumns; ++c) {
          const std::int64_t column = first + c * Lanes::kCount;
          if (column < columns) sum[c] += weight * values[column];
        }
      }
      added += Lanes::kCount;
      if (added < kShort) continue;
      added = 0;
      KEEL_UNROLL
      for (int c = 0; c < kColumns; ++c) total[c] += sum[c], sum[c] = 0;
    }
    KEEL_UNROLL
    for (int c = 0; c < kColumns; ++c) {
      const std::int64_t column = first + c * Lanes::kCount;
      if (column < columns) put(column, total[c] + sum[c]);
    }
  }
}

}  // namespace keel::cuda
