#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "core/dropout.h"
#include "core/element.h"
#include "core/problem.h"

namespace keel::reference {

// Rows [begin, begin + rows) of one head as float64, (rows, d).
inline std::vector<double> head_rows(const TensorView& x, std::int64_t batch, std::int64_t head, std::int64_t begin,
                                     std::int64_t rows) {
  const std::int64_t d = x.shape[3];
  std::vector<double> copy(static_cast<std::size_t>(rows * d));
  for (std::int64_t n = 0; n < rows; ++n) {
    for (std::int64_t c = 0; c < d; ++c) copy[n * d + c] = load_at(x, batch, head, begin + n, c);
  }
  return copy;
}

// One query row of one head, from the scores to the weights. Vectors hold one value per key of the entry; what masks
// hide is 0 everywhere and has `visible` false, whatever k holds there.
struct Row {
  std::vector<char> visible;
  std::vector<double> dot;    // q·k
  std::vector<double> slope;  // d(softcap)/ds: 1 − tanh²(s/c), or 1
  std::vector<double> bend;   // d²(softcap)/ds²: −2 tanh(s/c)·slope/c, or 0
  std::vector<double> s;      // the score that enters the softmax
  std::vector<double> p;      // softmax weights
  std::vector<double> z;      // dropout's multiplier of each weight: 1 without dropout
  double scale = 1.0;
  std::int64_t count = 0;  // visible keys
  double m = 0.0;          // largest visible score
  double lse = 0.0;
  double p_max = 0.0;  // weight of the largest score; not exp(m − lse), as lse cannot represent log l next to m = −1e30
  double p_sink = 0.0;
  double sink = 0.0;
};

// The weights of a row over a slice of the keys, whose lse over all keys is known.
inline void take_lse(double lse, Row& row) {
  row.lse = lse;
  row.p_max = std::exp(row.m - lse);
  row.p_sink = std::exp(row.sink - lse);
  for (std::size_t j = 0; j < row.p.size(); ++j) row.p[j] = row.visible[j] ? std::exp(row.s[j] - lse) : 0.0;
}

// One row of one head of one entry.
struct RowIndex {
  std::int64_t e = 0, h = 0, i = 0;
};

// Where the table has the bias of key j for query i of an entry.
inline std::int64_t distance_at(const Problem& problem, const Entry& entry, std::int64_t i, std::int64_t j) {
  const std::int64_t radius = problem.options.relative_bias.shape[1] / 2;
  return std::clamp(j - i - entry.diagonal, -radius, radius) + radius;
}

// Whether a block mask leaves key j to query i, both counted in the tensors' rows.
inline bool listed(const BlockMask& mask, std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) {
  const std::int64_t rows = mask.tiles.shape[1], keys = mask.tiles.shape[2];
  b = mask.offsets.shape[0] == 1 ? 0 : b;
  h = mask.offsets.shape[1] == 1 ? 0 : h;
  const auto end = static_cast<std::int64_t>(load_at(mask.offsets, b, h, i / rows + 1));
  for (auto at = static_cast<std::int64_t>(load_at(mask.offsets, b, h, i / rows)); at < end; ++at) {
    if (static_cast<std::int64_t>(load_at(mask.blocks, at, 0)) != j / keys) continue;
    const auto tile = static_cast<std::int64_t>(load_at(mask.blocks, at, 1));
    return tile < 0 || load_at(mask.tiles, tile, i % rows, j % keys) != 0.0;
  }
  return false;
}

// Whether masks and biases leave key j to query i, both counted from the entry's first.
inline bool allowed(const Problem& problem, const Entry& entry, std::int64_t h, std::int64_t i, std::int64_t j) {
  const Options& o = problem.options;
  const std::int64_t b = entry.batch, iq = entry.q_begin + i, jk = entry.k_begin + j;
  if (o.mask.given() && load_at(o.mask, b, h, iq, jk) == 0.0) return false;
  if (o.block_mask != nullptr && !listed(*o.block_mask, b, h, iq, jk)) return false;
  if (o.relative_bias.given() && load_at(o.relative_bias, h, distance_at(problem, entry, i, j)) == -INFINITY) {
    return false;
  }
  return !(o.bias.given() && load_at(o.bias, b, h, iq, jk) == -INFINITY);
}

// A bias as it counts. Kernels keep scores in units of log 2, where a finite bias stays finite: beyond what
// the accumulation type can hold there, ±2.36e38 in f32, it is clamped.
inline double bounded_bias(const Problem& problem, double bias) {
  const double most = accumulation_dtype(problem.dtype) == DType::f64 ? std::numeric_limits<double>::max()
                                                                      : std::numeric_limits<float>::max();
  constexpr double kLn2 = 0.693147180559945309417;
  return std::isinf(bias) ? bias : std::clamp(bias, -most * kLn2, most * kLn2);
}

// The bias and the bias by distance of key j for query i, both counted from the entry's first.
inline double bias_at(const Problem& problem, const Entry& entry, std::int64_t h, std::int64_t i, std::int64_t j) {
  const Options& o = problem.options;
  double sum = 0.0;
  if (o.bias.given()) {
    sum += bounded_bias(problem, load_at(o.bias, entry.batch, h, entry.q_begin + i, entry.k_begin + j));
  }
  if (o.relative_bias.given()) {
    sum += bounded_bias(problem, load_at(o.relative_bias, h, distance_at(problem, entry, i, j)));
  }
  return sum;
}

// The row at `index`; q (d_k) and k (k_len, d_k) as float64. Pass numbers are those of backward.cc.
inline void compute_row(const Problem& problem, const RowIndex& index, const double* q, const double* k, Row& row) {
  const auto [e, h, i] = index;
  const Options& o = problem.options;
  const Entry entry = problem.entry(e);
  const std::int64_t b = entry.batch, iq = entry.q_begin + i, d = problem.d_k;
  const auto n = static_cast<std::size_t>(entry.k_len);
  for (auto* values : {&row.dot, &row.slope, &row.bend, &row.s, &row.p, &row.z}) values->assign(n, 0.0);
  row.visible.assign(n, 0);
  row.count = 0;
  row.m = -INFINITY;
  row.lse = -INFINITY;
  row.p_max = 0.0;
  row.p_sink = 0.0;
  row.sink = o.sinks.given() ? load_at(o.sinks, h) : -INFINITY;
  row.scale = o.scale_tensor.given() ? load_at(o.scale_tensor, b, h, iq) : problem.scale;
  const double alibi = o.alibi.given() ? load_at(o.alibi, b, h) : 0.0;
  const std::int64_t at = i + entry.diagonal;

  // pass 1: scores.   s = scale·(q·k) → softcap → + bias → + ALiBi
  bool nan = false;
  const KeyRange keys = problem.sequences.key_range(entry, i);
  for (std::int64_t j = keys.begin; j < keys.end; ++j) {
    if (!allowed(problem, entry, h, i, j)) continue;
    double dot = 0.0;
    for (std::int64_t c = 0; c < d; ++c) dot += q[c] * k[j * d + c];
    double s = row.scale * dot;
    row.slope[j] = 1.0;
    if (o.softcap) {
      const double t = std::tanh(s / *o.softcap);
      s = *o.softcap * t;
      row.slope[j] = 1.0 - t * t;
      row.bend[j] = -2.0 * t * row.slope[j] / *o.softcap;
    }
    s += bias_at(problem, entry, h, i, j);
    if (o.alibi.given()) s -= alibi * static_cast<double>(std::abs(at - j));
    row.visible[j] = 1;
    row.dot[j] = dot;
    row.s[j] = s;
    row.count += 1;
    nan = nan || std::isnan(s);
    row.m = std::max(row.m, s);
  }
  if (row.count == 0) return;
  if (nan) row.m = NAN;

  // pass 2: softmax.   p = exp(s − lse),  lse = log(Σ exp(s) + exp(sink))
  const double top = nan ? NAN : std::max(row.m, row.sink);
  double l = o.sinks.given() ? std::exp(row.sink - top) : 0.0;
  for (std::int64_t j = keys.begin; j < keys.end; ++j) {
    if (row.visible[j]) l += row.p[j] = std::exp(row.s[j] - top);
  }
  row.lse = top + std::log(l);
  row.p_max = std::exp(row.m - top) / l;
  row.p_sink = o.sinks.given() ? std::exp(row.sink - top) / l : 0.0;
  const Dropout dropout(o.dropout, o.seed);
  for (std::int64_t j = keys.begin; j < keys.end; ++j) {
    if (!row.visible[j]) continue;
    row.p[j] /= l;
    row.z[j] = o.dropout > 0.0 ? dropout.multiplier(e, h, entry.q_position + i, entry.k_position + j)
                               : 1.0;  // pass 3: dropout
  }
}

}  // namespace keel::reference
