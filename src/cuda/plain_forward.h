#pragma once

#include <cmath>

#include "core/call.h"
#include "cuda/element.h"
#include "cuda/lanes.h"
#include "cuda/plain_scores.h"
#include "cuda/plain_sums.h"

// The plain forward kernel: every option, dtype, head size and stride, one query row at a time.
//
//   pass 1: s = score of each visible key    m = max s    l = Σ e^(s−m)    statistics
//   pass 2: p = e^(s−m)/l, s computed again    o = Σ p·z·v    z: dropout
//
// Cost: twice d_k multiply-adds per score and d_v per weight, without the matrix units; keys are read from the caches
// by each row on its own.
namespace keel::cuda {

// The statistics of a row, `keys` being its state without the sink and `all` with it.
template <class A>
KEEL_HD void report(const Call& call, const Entry& entry, std::int64_t h, std::int64_t i, const RowState<A>& keys,
                    const RowState<A>& all) {
  const auto put = [&](const MutableStrided& to, double value) {
    if (to) store_as(to.data, to.dtype, place_in(to, entry.batch, h, entry.q_begin + i), value);
  };
  const auto put_count = [&](const MutableStrided& to, std::int64_t count) {
    if (to) static_cast<std::int64_t*>(to.data)[place_in(to, entry.batch, h, entry.q_begin + i)] = count;
  };
  const bool masked = all.visible == 0;
  put_count(call.visible, keys.visible);
  put_count(call.logit_count, keys.counted);
  put(call.max_logit, keys.m);
  // A row whose visible scores are all −inf has l = 0: 0/0.
  put(call.lse, masked ? -INFINITY : all.l == 0 ? NAN : static_cast<double>(all.m) + std::log(all.l));
  // Not from lse, which cannot hold log l beside a score of −1e30.
  put(call.max_weight, masked ? 0.0 : static_cast<double>(std::exp(keys.m - all.m)) / all.l);
  const double entropy = masked ? 0.0 : std::log(all.l) - all.w / all.l;
  put(call.entropy, entropy < 0 ? 0.0 : entropy);  // rounding can leave a hair below 0
  const bool undefined = !masked && keys.m == static_cast<A>(-INFINITY);
  put(call.logit_mean, undefined ? NAN : keys.mean());
  put(call.logit_var, undefined ? NAN : keys.variance());
}

// Query `row` of entry `e`, counted from the entry's first, for one head: the output, every statistic of the row and
// its weights. Elements of q, k and v have type T.
template <class T, class Lanes>
KEEL_HD void plain_row(const Call& call, std::int64_t e, std::int64_t h, std::int64_t row, const Lanes& lanes) {
  using A = Sum<T>;
  const Entry entry = call.sequences.entry(e);
  const ScoreRow<T> scores(call, entry, h, row);
  const RowState<A> keys = state_of(scores, call.logit_mean || call.logit_var, lanes);
  RowState<A> all = keys;
  join_sink(call, h, all);
  if (lanes.lane() == 0) report(call, entry, h, row, keys, all);

  const A m = all.m;
  const A norm = static_cast<A>(1.0 / all.l);  // NaN or infinite where weights are NaN
  const Dropout dropout(call.dropout, call.seed);
  const MutableStrided& weights = call.weights;
  const std::int64_t b = entry.batch, iq = entry.q_begin + row;
  const auto put_weight = [&](std::int64_t jk, double weight) {
    store_as(weights.data, weights.dtype, place_in(weights, b, h, iq, jk), weight);
  };
  const auto weight = [&](std::int64_t, std::int64_t j) {
    Term<A> term{scores.sees(j), 0};
    if (term.seen) {
      term.weight = std::exp(scores.score(j).s - m) * norm;
      if (call.dropout > 0) {
        term.weight *= static_cast<A>(dropout.multiplier(e, h, entry.q_position + row, entry.k_position + j));
      }
    }
    if (weights) put_weight(entry.k_begin + j, term.weight);
    return term;
  };
  const auto values = [&](std::int64_t, std::int64_t j) {
    return elements<T>(call.v, b, h / call.group, entry.k_begin + j);
  };
  const auto put = [&](std::int64_t c, double sum) {
    store_as(call.out.data, call.out.dtype, place_in(call.out, b, h, iq, c), sum);
  };
  const KeyRange range = scores.keys();
  sum_rows<A>(lanes, {1, range.begin, range.end, call.d_v}, weight, values, put);
  if (!weights) return;
  for (std::int64_t jk = lanes.lane(); jk < call.sequences.n_k; jk += Lanes::kCount) {
    if (jk < entry.k_begin + range.begin || jk >= entry.k_begin + range.end) put_weight(jk, 0.0);
  }
}

// Work that is done in items, each by all lanes together. These are the rows of the tensors, (B, H_q, N_q).
template <class T>
struct ForwardRows {
  Call call;

  template <class Lanes>
  KEEL_HD void operator()(std::int64_t item, const Lanes& lanes) const {
    const std::int64_t n_q = call.sequences.n_q, head = item / n_q;
    const Place place = place_of_row(call.sequences, head / call.q_heads, item % n_q);
    plain_row<T>(call, place.entry, head % call.q_heads, place.index, lanes);
  }
};

// The scores of a row; the call keeps no more than their stage. Items as above.
template <class T>
struct WriteScores {
  Call call;

  template <class Lanes>
  KEEL_HD void operator()(std::int64_t item, const Lanes& lanes) const {
    const std::int64_t n_q = call.sequences.n_q, head = item / n_q, b = head / call.q_heads, h = head % call.q_heads;
    const Place place = place_of_row(call.sequences, b, item % n_q);
    const ScoreRow<T> scores(call, place.of, h, place.index);
    const KeyRange keys = scores.keys();
    const MutableStrided& to = call.scores;
    for (std::int64_t jk = lanes.lane(); jk < call.sequences.n_k; jk += Lanes::kCount) {
      const std::int64_t j = jk - place.of.k_begin;
      const bool seen = j >= keys.begin && j < keys.end && scores.sees(j);
      store_as(to.data, to.dtype, place_in(to, b, h, item % n_q, jk), seen ? double{scores.score(j).s} : -INFINITY);
    }
  }
};

// How many rows or keys there are. Where there is one it lies in memory, so their number does not overflow.
inline std::int64_t rows_of(const Call& call) {
  const Sequences& s = call.sequences;
  return s.batch == 0 || s.n_q == 0 ? 0 : s.batch * call.q_heads * s.n_q;
}
inline std::int64_t keys_of(const Call& call, std::int64_t heads) {
  const Sequences& s = call.sequences;
  return s.batch == 0 || s.n_k == 0 ? 0 : s.batch * heads * s.n_k;
}

}  // namespace keel::cuda
