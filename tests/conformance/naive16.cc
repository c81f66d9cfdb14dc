#include "conformance/naive16.h"

#include <cmath>

#include "core/problem.h"
#include "reference/row.h"

namespace keel::conformance {
namespace {

double rounded(double x, DType dtype) {
  return dtype == DType::f16 ? to_float(to_float16(x)) : static_cast<double>(to_float(to_bfloat16(x)));
}

// Scores to weights of one row, all rounded on the way. `row` is the oracle's and gets its s and p replaced.
void round_row(const Problem& p, const Entry& entry, std::int64_t h, std::int64_t i, reference::Row& row) {
  const Options& o = p.options;
  const auto R = [&](double x) { return rounded(x, p.dtype); };
  const std::int64_t at = i + entry.diagonal;
  double top = row.sink;
  for (std::size_t j = 0; j < row.s.size(); ++j) {
    if (!row.visible[j]) continue;
    double s = R(row.scale * R(row.dot[j]));
    if (o.softcap) s = R(*o.softcap * R(std::tanh(R(s / *o.softcap))));
    s = R(s + reference::bias_at(p, entry, h, i, static_cast<std::int64_t>(j)));
    if (o.alibi.given())
      s = R(s - load_at(o.alibi, entry.batch, h) * static_cast<double>(std::abs(at - static_cast<int64_t>(j))));
    row.s[j] = s;
    top = std::max(top, s);
  }
  double l = o.sinks.given() ? std::exp(row.sink - top) : 0.0;
  for (std::size_t j = 0; j < row.s.size(); ++j) {
    if (row.visible[j]) l += row.p[j] = std::exp(row.s[j] - top);
  }
  row.p_sink = o.sinks.given() ? R(std::exp(row.sink - top) / l) : 0.0;
  for (std::size_t j = 0; j < row.s.size(); ++j) {
    if (row.visible[j]) row.p[j] = R(row.p[j] / l);
  }
}

// Calls visit(e, entry, h, i, row) for every row, rounded.
template <class Visit>
void for_rows(const Problem& p, Visit visit) {
  reference::Row row;
  for (std::int64_t e = 0; e < p.entries(); ++e) {
    const Entry entry = p.entry(e);
    for (std::int64_t h = 0; h < p.q_heads; ++h) {
      const auto q = reference::head_rows(p.q, entry.batch, h, entry.q_begin, entry.q_rows);
      const auto k = reference::head_rows(p.k, entry.batch, p.kv_head(h), entry.k_begin, entry.k_len);
      for (std::int64_t i = 0; i < entry.q_rows; ++i) {
        reference::compute_row(p, {e, h, i}, q.data() + i * p.d_k, k.data(), row);
        if (row.count == 0) continue;
        round_row(p, entry, h, i, row);
        visit(entry, h, i, row);
      }
    }
  }
}

Problem problem_of(const Instance& instance, const ForwardMemory& memory) {
  return make_problem(instance.q(), instance.k(), instance.v(), memory.out_view(), instance.options(), {});
}

void round_all(Dense& x, DType dtype) {
  for (double& value : x.values) value = rounded(value, dtype);
}

// Adds to a gradient whose summed dimensions have size 1.
void add(Dense& x, double value, std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j = 0) {
  if (x.values.empty()) return;
  x.at(x.shape[0] == 1 ? 0 : b, x.shape[1] == 1 ? 0 : h, x.shape[2] == 1 ? 0 : i, x.shape[3] == 1 ? 0 : j) += value;
}

}  // namespace

Naive16 compute_naive16(const Instance& instance) {
  const ForwardMemory memory = instance.forward_memory();
  const Problem p = problem_of(instance, memory);
  Naive16 naive{Dense({p.batch, p.q_heads, p.n_q, p.d_v}), Dense({p.batch, p.q_heads, p.n_q, p.n_k})};
  for_rows(p, [&](const Entry& entry, std::int64_t h, std::int64_t i, const reference::Row& row) {
    for (std::int64_t j = 0; j < entry.k_len; ++j) {
      if (!row.visible[j]) continue;
      const double w = rounded(row.p[j] * row.z[j], p.dtype);
      const std::int64_t iq = entry.q_begin + i, jk = entry.k_begin + j;
      naive.weights.at(entry.batch, h, iq, jk) = w;
      for (std::int64_t c = 0; c < p.d_v; ++c) {
        naive.out.at(entry.batch, h, iq, c) += w * load_at(p.v, entry.batch, p.kv_head(h), jk, c);
      }
    }
  });
  round_all(naive.out, p.dtype);
  return naive;
}

ExpectedGradients compute_naive16_gradients(const Instance& instance) {
  const ForwardMemory memory = instance.forward_memory();
  const Problem p = problem_of(instance, memory);
  const BackwardInputs in = instance.backward_inputs();
  ExpectedGradients g = instance.expected_gradients();  // for the shapes
  for (Dense* x : {&g.dq, &g.dk, &g.dv, &g.dbias, &g.dscale, &g.dsinks, &g.drelative})
    x->values.assign(x->values.size(), 0.0);
  const auto R = [&](double x) { return rounded(x, p.dtype); };
  std::vector<double> dp;
  for_rows(p, [&](const Entry& entry, std::int64_t h, std::int64_t i, const reference::Row& row) {
    const std::int64_t b = entry.batch, hk = p.kv_head(h), iq = entry.q_begin + i;
    const double dlse = in.dlse.given() ? load_at(in.dlse, b, h, iq) : 0.0;
    dp.assign(row.p.size(), 0.0);
    double D = 0.0;
    for (std::int64_t j = 0; j < entry.k_len; ++j) {
      if (!row.visible[j]) continue;
      double dov = 0.0;
      const double w = R(row.p[j] * row.z[j]);
      for (std::int64_t c = 0; c < p.d_v; ++c) {
        const double doc = load_at(in.dout, b, h, iq, c);
        dov += doc * load_at(p.v, b, hk, entry.k_begin + j, c);
        g.dv.at(b, hk, entry.k_begin + j, c) += w * doc;
      }
      dp[j] = R(R(dov) * row.z[j]);
      D += row.p[j] * dp[j];
    }
    if (!g.dsinks.values.empty()) g.dsinks.at(h) += R(row.p_sink * (dlse - D));
    for (std::int64_t j = 0; j < entry.k_len; ++j) {
      if (!row.visible[j]) continue;
      const double ds = R(row.p[j] * (dp[j] - D + dlse));
      add(g.dbias, ds, b, h, iq, entry.k_begin + j);
      if (p.options.relative_bias.given()) add(g.drelative, ds, h, reference::distance_at(p, entry, i, j), 0);
      const double dx = R(ds * R(row.slope[j]));
      add(g.dscale, R(dx * R(row.dot[j])), b, h, iq);
      const double dy = R(dx * row.scale);
      for (std::int64_t c = 0; c < p.d_k; ++c) {
        g.dq.at(b, h, iq, c) += dy * load_at(p.k, b, hk, entry.k_begin + j, c);
        g.dk.at(b, hk, entry.k_begin + j, c) += dy * load_at(p.q, b, h, iq, c);
      }
    }
  });
  for (Dense* x : {&g.dq, &g.dk, &g.dv, &g.dbias, &g.drelative}) round_all(*x, p.dtype);
  return g;
}

}  // namespace keel::conformance
