#pragma once

#include "cuda/plain_backward.h"

// The gradients that may be summed over dimensions which the input repeats along: dbias and dscale; and dsinks.
namespace keel::cuda {

// One number per dimension: b, h, i, j.
struct Index4 {
  std::int64_t at[4];
};
KEEL_HD constexpr std::int64_t count_of(const Index4& counts) {
  return counts.at[0] * counts.at[1] * counts.at[2] * counts.at[3];
}
// Number n of all indices below `counts`, in C order.
KEEL_HD constexpr Index4 index_of(std::int64_t n, const Index4& counts) {
  Index4 index{};
  for (int d = 3; d >= 0; --d) {
    index.at[d] = n % counts.at[d];
    n /= counts.at[d];
  }
  return index;
}

// A gradient of shape `counts`, of which a dimension of stride 0 is one place. An element is the sum over all terms of
// the dimensions that it does not have.
struct Reduced {
  Index4 elements, terms;

  KEEL_HD Reduced(const MutableStrided& x, const Index4& counts) {
    const std::int64_t strides[] = {x.batch, x.head, x.row, x.column};
    for (int d = 0; d < 4; ++d) {
      elements.at[d] = strides[d] == 0 ? 1 : counts.at[d];
      terms.at[d] = strides[d] == 0 ? counts.at[d] : 1;
    }
  }

  // Σ value(index) over the terms of an element, by all lanes.
  template <class Lanes, class Value>
  KEEL_HD double sum(std::int64_t element, const Lanes& lanes, const Value& value) const {
    const Index4 first = index_of(element, elements);
    LongSum total;
    for (std::int64_t t = lanes.lane(); t < count_of(terms); t += Lanes::kCount) {
      Index4 index = index_of(t, terms);
      for (int d = 0; d < 4; ++d) index.at[d] += first.at[d];
      total.add(value(index));
    }
    return lanes.sum(total.value());
  }
  // Where an element lies.
  KEEL_HD std::int64_t place(const MutableStrided& x, std::int64_t element) const {
    const Index4 index = index_of(element, elements);
    return place_in(x, index.at[0], index.at[1], index.at[2], index.at[3]);
  }
};

// Items are elements of dbias.
template <class T>
struct BiasGradients {
  BackwardCall call;
  const RowNumbers<Sum<T>>* rows;
  Reduced reduced;

  template <class Lanes>
  KEEL_HD void operator()(std::int64_t item, const Lanes& lanes) const {
    const double sum = reduced.sum(item, lanes, [&](const Index4& at) {
      const Place place = place_of_row(call.forward.sequences, at.at[0], at.at[2]);
      const GradientRow<T> row(call, rows, place, at.at[1]);
      const std::int64_t j = at.at[3] - place.of.k_begin;
      return row.sees(j) ? static_cast<double>(row.gradient(j).ds) : 0.0;
    });
    if (lanes.lane() == 0) put_gradient(call.dbias, call.accumulate, reduced.place(call.dbias, item), sum);
  }
};

// What each row gives to dscale. Items are rows of the tensors, (B, H_q, N_q).
template <class T>
struct ScaleRows {
  BackwardCall call;
  const RowNumbers<Sum<T>>* rows;
  double* values;

  template <class Lanes>
  KEEL_HD void operator()(std::int64_t item, const Lanes& lanes) const {
    const Call& f = call.forward;
    const std::int64_t n_q = f.sequences.n_q, head = item / n_q;
    const Place place = place_of_row(f.sequences, head / f.q_heads, item % n_q);
    const GradientRow<T> row(call, rows, place, head % f.q_heads);
    LongSum sum;
    for (std::int64_t j = row.keys().begin + lanes.lane(); j < row.keys().end; j += Lanes::kCount) {
      if (!row.sees(j)) continue;
      const auto gradient = row.gradient(j);
      sum.add(static_cast<double>(gradient.dx) * gradient.dot);
    }
    const double all = lanes.sum(sum.value());
    if (lanes.lane() == 0) values[item] = all;
  }
};

// Items are elements of dscale.
struct ScaleGradients {
  BackwardCall call;
  const double* values;
  Reduced reduced;

  template <class Lanes>
  KEEL_HD void operator()(std::int64_t item, const Lanes& lanes) const {
    const double sum = reduced.sum(item, lanes, [&](const Index4& at) {
      return values[(at.at[0] * call.forward.q_heads + at.at[1]) * call.forward.sequences.n_q + at.at[2]];
    });
    if (lanes.lane() == 0) put_gradient(call.dscale, call.accumulate, reduced.place(call.dscale, item), sum);
  }
};

// What a row gives to its head's sink, a key without a value: dp = 0.
template <class A>
KEEL_HD double sink_gradient(double sink, const RowNumbers<A>& row) {
  if (row.masked()) return 0.0;
  return -std::exp(sink - static_cast<double>(row.p.top)) * static_cast<double>(row.p.norm) * row.delta;
}

// Items are query heads.
template <class A>
struct SinkGradients {
  BackwardCall call;
  const RowNumbers<A>* rows;

  template <class Lanes>
  KEEL_HD void operator()(std::int64_t h, const Lanes& lanes) const {
    const std::int64_t n_q = call.forward.sequences.n_q;
    const auto sink = load_row_value<double>(call.forward.sinks, 0, h, 0);
    LongSum sum;
    for (std::int64_t r = lanes.lane(); r < call.forward.sequences.batch * n_q; r += Lanes::kCount) {
      sum.add(sink_gradient(sink, rows[(r / n_q * call.forward.q_heads + h) * n_q + r % n_q]));
    }
    const double all = lanes.sum(sum.value());
    if (lanes.lane() == 0) put_gradient(call.dsinks, call.accumulate, place_in(call.dsinks, 0, h, 0), all);
  }
};

// 0 in every element of an array; a dimension of stride 0 is one place. Items are elements.
struct Zeros {
  MutableStrided to;
  Index4 counts;

  template <class Lanes>
  KEEL_HD void operator()(std::int64_t item, const Lanes&) const {
    const Index4 index = index_of(item, counts);
    store_as(to.data, to.dtype, place_in(to, index.at[0], index.at[1], index.at[2], index.at[3]), 0.0);
  }
};

}  // namespace keel::cuda
