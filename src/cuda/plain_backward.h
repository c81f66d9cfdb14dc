#pragma once

#include <cmath>

#include "core/call.h"
#include "cuda/element.h"
#include "cuda/lanes.h"
#include "cuda/plain_key_sums.h"
#include "cuda/plain_scores.h"
#include "cuda/plain_sums.h"

// The plain backward kernels: every option, dtype, head size and stride, one row, key or element of a gradient at a
// time. Each element of a gradient is summed by one group of lanes in one order, so the bits are the same from run to
// run.
//
//   p = e^(s − top)·norm    dp = z·(do·v)    ds = p·(dp − delta)    delta = do·o − dlse    dx = ds·slope
//   dv_j = Σ_i p·z·do_i    dq_i = Σ_j dx·scale·k_j    dk_j = Σ_i dx·scale·q_i    dbias = ds    dscale = Σ_j dx·(q·k)
//
// Cost: every gradient computes the scores anew: 2·d_k + d_v multiply-adds per score for dq and for dk, d_k + d_v for
// dv.
namespace keel::cuda {

// What a row brings to each of its keys. A row without gradient has norm 0.
template <class A>
struct RowNumbers {
  RowNorm<A> p;
  A delta = 0;

  KEEL_HD bool masked() const { return p.norm == A{0}; }
};

// Beyond this size an lse is too coarse to take weights from: rounded to float, it is off by up to 2e-6 here, by 1 from
// 1e7 on. Such rows find their maximum and sum again.
template <class A>
constexpr A kTrustedLse = sizeof(A) == 4 ? 32 : 1000;

// A gradient's sum, written or added to what is there.
KEEL_HD inline void put_gradient(const MutableStrided& to, bool accumulate, std::int64_t at, double sum) {
  store_as(to.data, to.dtype, at, accumulate ? load_as<double>(to.data, to.dtype, at) + sum : sum);
}

// Items are rows of the tensors, (B, H_q, N_q).
template <class T>
struct PrepareRows {
  BackwardCall call;
  RowNumbers<Sum<T>>* rows;

  template <class Lanes>
  KEEL_HD void operator()(std::int64_t item, const Lanes& lanes) const {
    const std::int64_t n_q = call.forward.sequences.n_q, head = item / n_q, heads = call.forward.q_heads;
    const Place place = place_of_row(call.forward.sequences, head / heads, item % n_q);
    const RowNumbers<Sum<T>> row = numbers(place, head % heads, lanes);
    if (lanes.lane() == 0) rows[item] = row;
  }

 private:
  template <class Lanes>
  KEEL_HD RowNumbers<Sum<T>> numbers(const Place& place, std::int64_t h, const Lanes& lanes) const {
    using A = Sum<T>;
    const Entry& entry = place.of;
    const std::int64_t b = entry.batch, iq = entry.q_begin + place.index;
    if (place.index >= entry.q_len) return {};
    const A lse = load_row_value<A>(call.lse, b, h, iq);
    if (lse == static_cast<A>(-INFINITY)) return {};
    RowNumbers<A> row = {{lse, A{1}}, A{0}};
    // Of a slice of the keys, lse is all there is.
    if (std::abs(lse) > kTrustedLse<A> && std::isfinite(lse) && call.forward.sequences.has_all_keys()) {
      row.p = norm_of(call.forward, ScoreRow<T>(call.forward, entry, h, place.index), h, lanes);
    }
    const auto out = any_elements<A>(call.out, b, h, iq), dout = any_elements<A>(call.dout, b, h, iq);
    for (std::int64_t c = lanes.lane(); c < call.forward.d_v; c += Lanes::kCount) row.delta += out[c] * dout[c];
    row.delta = lanes.sum(row.delta) - (call.dlse ? load_row_value<A>(call.dlse, b, h, iq) : A{0});
    return row;
  }
};

// One query row of the backward pass: what it gives to a key, and takes from it.
template <class T>
class GradientRow {
 public:
  using A = Sum<T>;

  KEEL_HD GradientRow(const BackwardCall& call, const RowNumbers<A>* rows, const Place& row, std::int64_t h)
      : call_(call),
        row_(row),
        head_(h),
        scores_(call.forward, row.of, h, row.index),
        numbers_(
            rows[(row.of.batch * call.forward.q_heads + h) * call.forward.sequences.n_q + row.of.q_begin + row.index]) {
  }

  KEEL_HD KeyRange keys() const { return scores_.keys(); }
  KEEL_HD bool sees(std::int64_t j) const {
    return j >= keys().begin && j < keys().end && !numbers_.masked() && scores_.sees(j);
  }

  // p·z
  KEEL_HD A weight(std::int64_t j) const { return numbers_.p.weight(scores_.score(j).s) * multiplier(j); }

  struct Gradient {
    A ds, dx, dot;
  };
  KEEL_HD Gradient gradient(std::int64_t j) const {
    const Score<A> score = scores_.score(j);
    const A ds = numbers_.p.weight(score.s) * (multiplier(j) * dot_of_values(j) - numbers_.delta);
    return {ds, ds * score.slope, score.dot};
  }

  // With respect to scale·q·k, so that dq = Σ x·k and dk = Σ x·q.
  KEEL_HD A scaled_gradient(std::int64_t j) const { return gradient(j).dx * scores_.scale(); }

 private:
  KEEL_HD A multiplier(std::int64_t j) const {
    if (!(call_.forward.dropout > 0)) return A{1};
    const Dropout dropout(call_.forward.dropout, call_.forward.seed);
    return static_cast<A>(
        dropout.multiplier(row_.entry, head_, row_.of.q_position + row_.index, row_.of.k_position + j));
  }

  // do·v
  KEEL_HD A dot_of_values(std::int64_t j) const {
    const Entry& entry = row_.of;
    const std::int64_t b = entry.batch, iq = entry.q_begin + row_.index, d_v = call_.forward.d_v;
    const auto v = elements<T>(call_.forward.v, b, head_ / call_.forward.group, entry.k_begin + j);
    if (call_.dout.dtype == call_.forward.dtype) return dot(elements<T>(call_.dout, b, head_, iq), v, d_v);
    return dot(elements<A>(call_.dout, b, head_, iq), v, d_v);
  }

  const BackwardCall& call_;
  const Place& row_;
  std::int64_t head_;
  ScoreRow<T> scores_;
  RowNumbers<A> numbers_;
};

// Items are rows of the tensors, (B, H_q, N_q).
template <class T>
struct QueryGradients {
  BackwardCall call;
  const RowNumbers<Sum<T>>* rows;

  template <class Lanes>
  KEEL_HD void operator()(std::int64_t item, const Lanes& lanes) const {
    using A = Sum<T>;
    const Call& f = call.forward;
    const std::int64_t n_q = f.sequences.n_q, head = item / n_q, h = head % f.q_heads;
    const Place place = place_of_row(f.sequences, head / f.q_heads, item % n_q);
    const Entry& entry = place.of;
    const GradientRow<T> row(call, rows, place, h);
    const auto term = [&](std::int64_t, std::int64_t j) {
      return row.sees(j) ? Term<A>{true, row.scaled_gradient(j)} : Term<A>();
    };
    const auto keys = [&](std::int64_t, std::int64_t j) {
      return elements<T>(f.k, entry.batch, h / f.group, entry.k_begin + j);
    };
    const auto put = [&](std::int64_t c, double sum) {
      put_gradient(call.dq, call.accumulate, place_in(call.dq, entry.batch, h, item % n_q, c), sum);
    };
    sum_rows<A>(lanes, {1, row.keys().begin, row.keys().end, f.d_k}, term, keys, put);
  }
};

// dk, or dv with kValues: sums over the rows of all heads that share the key-value head. Items are keys of the tensors,
// (B, H_kv, N_k).
template <class T, bool kValues>
struct KeyGradients {
  BackwardCall call;
  const RowNumbers<Sum<T>>* rows;

  template <class Lanes>
  KEEL_HD void operator()(std::int64_t item, const Lanes& lanes) const {
    using A = Sum<T>;
    const Call& f = call.forward;
    const std::int64_t n_k = f.sequences.n_k, head = item / n_k, hk = head % f.kv_heads;
    const Place key = place_of_key(f.sequences, head / f.kv_heads, item % n_k);
    const Entry& entry = key.of;
    const RowRange range = row_range(f.sequences, entry, key.index);
    const auto term = [&](std::int64_t g, std::int64_t i) {
      const Place place = {key.entry, entry, i};
      const GradientRow<T> row(call, rows, place, hk * f.group + g);
      if (!row.sees(key.index)) return Term<A>();
      return Term<A>{true, kValues ? row.weight(key.index) : row.scaled_gradient(key.index)};
    };
    const auto row = [&](std::int64_t g, std::int64_t i) {
      if constexpr (kValues) {
        return any_elements<A>(call.dout, entry.batch, hk * f.group + g, entry.q_begin + i);
      } else {
        return elements<T>(f.q, entry.batch, hk * f.group + g, entry.q_begin + i);
      }
    };
    const MutableStrided& to = kValues ? call.dv : call.dk;
    const auto put = [&](std::int64_t c, double sum) {
      put_gradient(to, call.accumulate, place_in(to, entry.batch, hk, item % n_k, c), sum);
    };
    sum_rows<A>(lanes, {f.group, range.begin, range.end, kValues ? f.d_v : f.d_k}, term, row, put);
  }
};

}  // namespace keel::cuda
