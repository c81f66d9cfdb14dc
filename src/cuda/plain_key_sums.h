#pragma once

#include <algorithm>
#include <cmath>

#include "cuda/plain_scores.h"
#include "cuda/plain_sums.h"

// Σ_i p_ij per key: a pass over the rows for what turns scores into weights, then one over the keys.
//
// Cost: d_k multiply-adds per score, twice.
namespace keel::cuda {

// The weights of a row: p = e^(s − top)·norm. A row that sees nothing has norm 0.
template <class A>
struct RowNorm {
  A top = 0, norm = 0;

  KEEL_HD A weight(A s) const { return std::exp(s - top) * norm; }
};

// As pass 1 finds it, the sink among the terms.
template <class T, class Lanes>
KEEL_HD RowNorm<Sum<T>> norm_of(const Call& call, const ScoreRow<T>& scores, std::int64_t h, const Lanes& lanes) {
  RowState<Sum<T>> state = state_of(scores, false, lanes);
  join_sink(call, h, state);
  if (state.visible == 0) return {};
  return {state.m, static_cast<Sum<T>>(1.0 / state.l)};
}

// Items are rows of the tensors, (B, H_q, N_q). Rows that do not count are left alone.
template <class T>
struct RowNorms {
  Call call;
  RowNorm<Sum<T>>* norms;

  template <class Lanes>
  KEEL_HD void operator()(std::int64_t item, const Lanes& lanes) const {
    const std::int64_t n_q = call.sequences.n_q, head = item / n_q, h = head % call.q_heads;
    const Place place = place_of_row(call.sequences, head / call.q_heads, item % n_q);
    if (place.index < first_summed_row(place.of, call.key_sum_rows)) return;
    const RowNorm<Sum<T>> norm = norm_of(call, ScoreRow<T>(call, place.of, h, place.index), h, lanes);
    if (lanes.lane() == 0) norms[item] = norm;
  }
};

// Items are keys of the tensors, (B, H_q, N_k). Keys that no row sees get 0, padding among them.
template <class T>
struct KeySums {
  Call call;
  const RowNorm<Sum<T>>* norms;

  template <class Lanes>
  KEEL_HD void operator()(std::int64_t item, const Lanes& lanes) const {
    const std::int64_t n_k = call.sequences.n_k, head = item / n_k, h = head % call.q_heads;
    const Place place = place_of_key(call.sequences, head / call.q_heads, item % n_k);
    const Entry& entry = place.of;
    const RowRange rows = row_range(call.sequences, entry, place.index);
    const std::int64_t begin = std::max(rows.begin, first_summed_row(entry, call.key_sum_rows));
    LongSum sum;
    for (std::int64_t i = begin + lanes.lane(); i < rows.end; i += Lanes::kCount) {
      const ScoreRow<T> scores(call, entry, h, i);
      if (!scores.sees(place.index)) continue;
      sum.add(norms[head * call.sequences.n_q + entry.q_begin + i].weight(scores.score(place.index).s));
    }
    const double all = lanes.sum(sum.value());
    const MutableStrided& to = call.key_sums;
    if (lanes.lane() == 0) store_as(to.data, to.dtype, place_in(to, entry.batch, h, item % n_k), all);
  }
};

}  // namespace keel::cuda
