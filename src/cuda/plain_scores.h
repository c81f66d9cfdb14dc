#pragma once

#include <cmath>
#include <limits>

#include "core/call.h"
#include "core/dropout.h"
#include "core/masked_score.h"
#include "cuda/element.h"
#include "cuda/lanes.h"

// The scores of one query row, in nats, and its softmax while keys come in: pass 1 of the forward kernel, and of
// whatever needs the same scores again.
namespace keel::cuda {

// A row or key of the tensors within its entry.
struct Place {
  std::int64_t entry = 0;  // its number
  Entry of;
  std::int64_t index = 0;  // from the entry's first
};

// The entry that position `at` of the whole belongs to: the last that begins no later.
KEEL_HD constexpr std::int64_t entry_at(const ListView& offsets, std::int64_t entries, std::int64_t at) {
  std::int64_t low = 0, high = entries;  // low begins no later than `at`, high begins later
  while (high - low > 1) {
    const std::int64_t middle = low + (high - low) / 2;
    (offsets[middle] <= at ? low : high) = middle;
  }
  return low;
}

KEEL_HD constexpr Place place_of_row(const Sequences& s, std::int64_t batch, std::int64_t row) {
  const std::int64_t e = s.packed() ? entry_at(s.q_offsets, s.entries(), s.first_query + row) : batch;
  const Entry entry = s.entry(e);
  return {e, entry, row - entry.q_begin};
}

KEEL_HD constexpr Place place_of_key(const Sequences& s, std::int64_t batch, std::int64_t key) {
  const std::int64_t e = s.packed() ? entry_at(s.k_offsets, s.entries(), s.first_key + key) : batch;
  const Entry entry = s.entry(e);
  return {e, entry, key - entry.k_begin};
}

// Rows [begin, end) of an entry, counted from its first: those whose key_range() holds key j.
struct RowRange {
  std::int64_t begin = 0, end = 0;
};
KEEL_HD constexpr RowRange row_range(const Sequences& s, const Entry& entry, std::int64_t j) {
  if (j >= entry.k_len) return {0, 0};
  const std::int64_t at = j - entry.diagonal;
  const std::int64_t begin = std::max<std::int64_t>(at - Sequences::bounded(s.window_right), 0);
  const std::int64_t end = std::min<std::int64_t>(at + Sequences::bounded(s.window_left) + 1, entry.q_len);
  if (begin >= end) return {0, 0};
  return {begin, end};
}

template <class A, class B>
KEEL_HD auto dot(const A& a, const B& b, std::int64_t n) {
  decltype(a[0] * b[0]) sum = 0;
  for (std::int64_t c = 0; c < n; ++c) sum += a[c] * b[c];
  return sum;
}

template <class A>
struct Score {
  A s;      // what enters the softmax
  A dot;    // q·k
  A slope;  // d(softcap)/ds: 1 − tanh²(s/c), or 1
};

// Query i of an entry, for one head. Elements of q, k and v have type T.
template <class T>
class ScoreRow {
 public:
  using A = Sum<T>;

  KEEL_HD ScoreRow(const Call& call, const Entry& entry, std::int64_t h, std::int64_t i)
      : call_(call),
        batch_(entry.batch),
        head_(h),
        row_(entry.q_begin + i),
        first_key_(entry.k_begin),
        at_(i + entry.diagonal),
        keys_(call.sequences.key_range(entry, i)),
        q_(elements<T>(call.q, entry.batch, h, entry.q_begin + i)),
        k_(elements<T>(call.k, entry.batch, h / call.group, entry.k_begin)),
        scale_(call.scale_tensor ? load_row_value<A>(call.scale_tensor, batch_, h, row_) : static_cast<A>(call.scale)),
        alibi_(call.alibi ? load_row_value<A>(call.alibi, batch_, h, 0) : A{0}) {}

  KEEL_HD KeyRange keys() const { return keys_; }
  KEEL_HD A scale() const { return scale_; }

  // Whether mask and bias leave key j, of keys(), to the row. What they hide is never read.
  KEEL_HD bool sees(std::int64_t j) const {
    if (call_.mask && static_cast<const std::uint8_t*>(call_.mask.data)[place(call_.mask, j)] == 0) return false;
    return !(call_.bias && bias(j) == static_cast<A>(-INFINITY));
  }

  KEEL_HD Score<A> score(std::int64_t j) const {
    const Elements<T> k = {k_.data + j * call_.k.row, k_.stride};
    Score<A> x = {A{0}, dot(q_, k, call_.d_k), A{1}};
    x.s = scale_ * x.dot;
    if (call_.softcap > 0) {
      const auto cap = static_cast<A>(call_.softcap);
      const A t = std::tanh(x.s / cap);
      x.s = cap * t;
      x.slope = (A{1} - t) * (A{1} + t);
    }
    if (call_.bias) x.s += bounded(bias(j));
    if (call_.alibi) x.s -= alibi_ * static_cast<A>(at_ > j ? at_ - j : j - at_);
    return x;
  }

 private:
  KEEL_HD std::int64_t place(const Strided& x, std::int64_t j) const {
    return place_in(x, batch_, head_, row_, first_key_ + j);
  }
  KEEL_HD A bias(std::int64_t j) const { return load_as<A>(call_.bias.data, call_.bias.dtype, place(call_.bias, j)); }

  // A finite bias counts as no more than what stays finite in units of log 2, in which other kernels keep scores.
  KEEL_HD static A bounded(A bias) {
    constexpr double kLn2 = 0.693147180559945309417;
    constexpr A most = static_cast<A>(static_cast<double>(std::numeric_limits<A>::max()) * kLn2);
    if (std::isinf(bias)) return bias;
    return bias > most ? most : bias < -most ? -most : bias;
  }

  const Call& call_;
  std::int64_t batch_, head_, row_, first_key_, at_;
  KeyRange keys_;
  Elements<T> q_, k_;
  A scale_, alibi_;
};

// A row over the keys so far:
//   m = max s    l = Σ e^(s−m)    w = Σ e^(s−m)·(s−m)    visible = the number of keys that masks leave
// and, over those with scores above kMaskedScore, their number and the sums of s − from and (s − from)², `from` being
// the first. Sums are in double, as one lane may add up very many keys.
template <class A>
struct RowState {
  A m = static_cast<A>(-INFINITY);
  double l = 0, w = 0;
  std::int64_t visible = 0, counted = 0;
  double from = 0, sum = 0, squares = 0;

  // Moves the reference from m to `to`. Keys that weigh nothing beside `to` are gone: from the lowest float to an
  // ordinary score, l·(m − to) overflows.
  KEEL_HD void raise(A to) {
    if (m == to) return;
    const A factor = m == static_cast<A>(-INFINITY) ? A{0} : std::exp(m - to);
    w = factor == A{0} ? 0.0 : factor * (w + l * static_cast<double>(m - to));
    l *= factor;
    m = to;
  }

  // A term e^s of the sum. −inf adds nothing; +inf and NaN leave l NaN.
  KEEL_HD void weigh(A s) {
    if (s == static_cast<A>(-INFINITY)) return;
    if (!(s <= m) && m == m) raise(s);
    const A p = std::exp(s - m);
    l += p;
    if (p > A{0}) w += static_cast<double>(p) * (s - m);
  }

  KEEL_HD void count(A s, bool moments) {
    visible += 1;
    if (s <= static_cast<A>(kMaskedScore)) return;
    if (counted == 0) from = s;
    counted += 1;
    if (!moments) return;
    const double off = s - from;
    sum += off;
    squares += off * off;
  }

  // The states of all lanes become one.
  template <class Lanes>
  KEEL_HD void join(const Lanes& lanes) {
    raise(lanes.max(m));
    l = lanes.sum(l);
    w = lanes.sum(w);
    visible = lanes.sum(visible);
    const double number = static_cast<double>(counted), mean = counted > 0 ? sum / number : 0.0;
    const double own = counted > 0 ? squares - sum * mean : 0.0;
    counted = lanes.sum(counted);
    if (counted == 0) return;
    // Means are reckoned from m, so that equal scores have variance 0, however large they are.
    const double top = std::isfinite(m) ? m : 0.0, off = number > 0 ? from - top + mean : 0.0;
    const double shift = lanes.sum(number * off) / static_cast<double>(counted);
    squares = lanes.sum((own < 0 ? 0.0 : own) + number * (off - shift) * (off - shift));
    from = top;
    sum = shift * static_cast<double>(counted);
  }

  KEEL_HD double mean() const { return counted > 0 ? from + sum / static_cast<double>(counted) : 0.0; }
  KEEL_HD double variance() const { return counted > 0 ? squares / static_cast<double>(counted) : 0.0; }
};

// Pass 1 of a row, over the keys that it sees.
template <class T, class Lanes>
KEEL_HD RowState<Sum<T>> state_of(const ScoreRow<T>& row, bool moments, const Lanes& lanes) {
  RowState<Sum<T>> state;
  const KeyRange keys = row.keys();
  for (std::int64_t j = keys.begin + lanes.lane(); j < keys.end; j += Lanes::kCount) {
    if (!row.sees(j)) continue;
    const Sum<T> s = row.score(j).s;
    state.weigh(s);
    state.count(s, moments);
  }
  state.join(lanes);
  return state;
}

// The sink's term, of a row that sees a key.
template <class A>
KEEL_HD void join_sink(const Call& call, std::int64_t h, RowState<A>& state) {
  if (call.sinks && state.visible > 0) state.weigh(load_row_value<A>(call.sinks, 0, h, 0));
}

}  // namespace keel::cuda
