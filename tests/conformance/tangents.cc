#include "conformance/tangents.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "conformance/generator.h"
#include "conformance/tolerance.h"
#include "conformance/visibility.h"
#include "core/problem.h"
#include "reference/reference.h"
#include "reference/row.h"

namespace keel::conformance {
namespace {

enum Stream : std::uint64_t { kQ = 101, kK, kV, kBias, kScale, kSinks, kSome };

Array normal_like(const MutableTensorView& like, DType dtype, std::uint64_t seed, std::uint64_t stream) {
  Array array = Array::with_strides<4>(dtype, like.shape, contiguous_strides(like.shape), Array::kNan,
                                       seed % 2 == 0 ? Placement::aligned : Placement::shifted);
  Generator random(seed, stream);
  array.fill([&](auto...) { return random.normal(); });
  return array;
}

// NaN and Inf in the rows that `keep` does not name.
void spoil(Array& array, const std::vector<char>& keep) {
  const double specials[] = {NAN, INFINITY, -INFINITY};
  const auto& shape = array.shape();
  std::size_t row = 0;
  for (std::int64_t b = 0; b < shape[0]; ++b) {
    for (std::int64_t h = 0; h < shape[1]; ++h) {
      for (std::int64_t n = 0; n < shape[2]; ++n, ++row) {
        for (std::int64_t d = 0; d < shape[3] && !keep[row]; ++d) array.set(specials[(n + d) % 3], b, h, n, d);
      }
    }
  }
}

// A float64 view of `sum` that adds up wherever `like` does.
template <std::size_t Rank>
BasicView<Rank, void*> summing_view(Dense& sum, const BasicView<Rank, void*>& like) {
  BasicView<Rank, void*> view{sum.values.data(), DType::f64, like.shape, {}};
  const auto strides = contiguous_strides(sum.shape);
  for (std::size_t i = 0; i < Rank; ++i) view.strides[i] = sum.shape[i] == like.shape[i] ? strides[i] : 0;
  return view;
}

ExpectedTangents zeros(const TangentMemory& typed) {
  ExpectedTangents e;
  const auto shape_of = [](const Array& x) { return Dense(read_sum(x.tensor()).shape); };
  e.tout = shape_of(typed.tout), e.tlse = shape_of(typed.tlse);
  e.gradients = {
      shape_of(typed.of.dq), shape_of(typed.of.dk), shape_of(typed.of.dv), {}, shape_of(typed.of.dscale), {}, {}};
  if (typed.of.dbias.exists()) e.gradients.dbias = shape_of(typed.of.dbias);
  if (typed.of.dsinks.exists()) e.gradients.dsinks = shape_of(typed.of.dsinks);
  return e;
}

// How far rounding can carry each result, as in magnitude.h: the oracle's formulas with every term taken absolutely,
// times 1 + a_j + Σ p·a.
class Sizes {
 public:
  Sizes(const TangentProblem& problem, const TangentMemory& typed)
      : problem_(problem), f_(problem.backward.forward), sizes_(zeros(typed)) {
    for (std::int64_t e = 0; e < f_.entries(); ++e) {
      for (std::int64_t h = 0; h < f_.q_heads; ++h) take_head(e, h);
    }
  }
  const ExpectedTangents& operator()() const { return sizes_; }

 private:
  static void add(Dense& x, double value, std::int64_t b, std::int64_t h = 0, std::int64_t n = 0, std::int64_t d = 0) {
    if (x.values.empty() || !std::isfinite(value)) return;
    const auto& s = x.shape;
    x.at(s[0] == 1 ? 0 : b, s[1] == 1 ? 0 : h, s[2] == 1 ? 0 : n, s[3] == 1 ? 0 : d) += value;
  }

  std::vector<double> absolute(const TensorView& view, std::int64_t b, std::int64_t h, std::int64_t begin,
                               std::int64_t rows, std::int64_t d) const {
    if (!view.given()) return std::vector<double>(static_cast<std::size_t>(rows * d), 0.0);
    std::vector<double> x = reference::head_rows(view, b, h, begin, rows);
    for (double& value : x) value = std::fabs(value);
    return x;
  }

  void take_head(std::int64_t e, std::int64_t h) {
    const Entry n = f_.entry(e);
    const Tangents& t = problem_.tangents;
    const std::int64_t b = n.batch, hk = f_.kv_head(h), d_k = f_.d_k, d_v = f_.d_v;
    const auto q = reference::head_rows(f_.q, b, h, n.q_begin, n.q_rows);
    const auto k = reference::head_rows(f_.k, b, hk, n.k_begin, n.k_len);
    const auto aq = absolute(f_.q, b, h, n.q_begin, n.q_rows, d_k);
    const auto ak = absolute(f_.k, b, hk, n.k_begin, n.k_len, d_k);
    const auto av = absolute(f_.v, b, hk, n.k_begin, n.k_len, d_v);
    const auto ado = absolute(problem_.backward.dout, b, h, n.q_begin, n.q_rows, d_v);
    const auto atq = absolute(t.tq, b, h, n.q_begin, n.q_rows, d_k);
    const auto atk = absolute(t.tk, b, hk, n.k_begin, n.k_len, d_k);
    const auto atv = absolute(t.tv, b, hk, n.k_begin, n.k_len, d_v);
    reference::Row row;
    for (std::int64_t i = 0; i < n.q_len; ++i) {
      reference::compute_row(f_, {e, h, i}, q.data() + i * d_k, k.data(), row);
      if (row.count > 0) {
        take_row({n, b, h, hk, i, aq.data() + i * d_k, atq.data() + i * d_k, ado.data() + i * d_v, ak, av, atk, atv},
                 row);
      }
    }
  }

  struct Parts {
    const Entry& entry;
    std::int64_t b, h, hk, i;
    const double *q, *tq, *dout;
    const std::vector<double>&k, &v, &tk, &tv;
  };

  void take_row(const Parts& x, const reference::Row& row) {
    const Options& o = f_.options;
    const Tangents& t = problem_.tangents;
    const std::int64_t b = x.b, h = x.h, iq = x.entry.q_begin + x.i, keys = x.entry.k_len, d_k = f_.d_k, d_v = f_.d_v;
    const auto n = static_cast<std::size_t>(keys);
    std::vector<double> a(n), tx(n), ts(n), dot(n), tdot(n), dp(n), tdp(n), to(static_cast<std::size_t>(d_v));
    const double scale = std::fabs(row.scale), tscale = t.tscale.given() ? std::fabs(load_at(t.tscale, b, h, iq)) : 0.0;
    const double tsink = t.tsinks.given() ? std::fabs(load_at(t.tsinks, h)) : 0.0;
    double mean = o.sinks.given() ? row.p_sink * std::fabs(row.sink) : 0.0, mu = row.p_sink * tsink, delta = 0.0;
    for (std::int64_t j = 0; j < keys; ++j) {
      if (!row.visible[j]) continue;
      for (std::int64_t c = 0; c < d_k; ++c) {
        dot[j] += x.q[c] * x.k[j * d_k + c];
        tdot[j] += x.tq[c] * x.k[j * d_k + c] + x.q[c] * x.tk[j * d_k + c];
      }
      for (std::int64_t c = 0; c < d_v; ++c) {
        dp[j] += row.z[j] * x.dout[c] * x.v[j * d_v + c];
        tdp[j] += row.z[j] * x.dout[c] * x.tv[j * d_v + c];
      }
      a[j] = scale * dot[j];
      if (o.softcap) a[j] = a[j] * row.slope[j] + *o.softcap;
      if (o.alibi.given()) {
        a[j] += std::fabs(load_at(o.alibi, b, h)) * static_cast<double>(std::abs(x.i + x.entry.diagonal - j));
      }
      a[j] += std::fabs(reference::bias_at(f_, x.entry, h, x.i, j));
      tx[j] = scale * tdot[j] + tscale * dot[j];
      ts[j] = row.slope[j] * tx[j];
      if (t.tbias.given()) ts[j] += std::fabs(load_at(t.tbias, b, h, iq, x.entry.k_begin + j));
      mean += row.p[j] * a[j];
      mu += row.p[j] * ts[j];
      delta += row.p[j] * dp[j];
    }
    if (problem_.backward.dlse.given()) delta += std::fabs(load_at(problem_.backward.dlse, b, h, iq));
    double tdelta = 0.0;
    for (std::int64_t j = 0; j < keys; ++j) {
      if (!row.visible[j]) continue;
      for (std::int64_t c = 0; c < d_v; ++c) {
        const double term = row.p[j] * row.z[j] * ((ts[j] + mu) * x.v[j * d_v + c] + x.tv[j * d_v + c]);
        to[static_cast<std::size_t>(c)] += term * (1.0 + a[j] + mean);
      }
    }
    for (std::int64_t c = 0; c < d_v; ++c) {
      tdelta += x.dout[c] * to[static_cast<std::size_t>(c)];
      add(sizes_.tout, to[static_cast<std::size_t>(c)], b, h, iq, c);
    }
    add(sizes_.tlse, mu * (1.0 + mean), b, h, iq);
    ExpectedGradients& g = sizes_.gradients;
    add(g.dsinks, row.p_sink * ((tsink + mu) * delta + tdelta) * (1.0 + std::fabs(row.sink) + mean), h);
    for (std::int64_t j = 0; j < keys; ++j) {
      if (!row.visible[j]) continue;
      const double factor = 1.0 + a[j] + mean, p = row.p[j] * factor;
      const std::int64_t jk = x.entry.k_begin + j;
      const double ds = p * (dp[j] + delta), tds = (ts[j] + mu) * ds + p * (tdp[j] + tdelta);
      const double dx = row.slope[j] * ds, tdx = std::fabs(row.bend[j]) * tx[j] * ds + row.slope[j] * tds;
      add(g.dbias, tds, b, h, iq, jk);
      add(g.dscale, tdx * dot[j] + dx * tdot[j], b, h, iq);
      for (std::int64_t c = 0; c < d_v; ++c) add(g.dv, p * row.z[j] * (ts[j] + mu) * x.dout[c], b, x.hk, jk, c);
      for (std::int64_t c = 0; c < d_k; ++c) {
        const double kc = x.k[j * d_k + c], tkc = x.tk[j * d_k + c];
        add(g.dq, (scale * tdx + tscale * dx) * kc + scale * dx * tkc, b, h, iq, c);
        add(g.dk, (scale * tdx + tscale * dx) * x.q[c] + scale * dx * x.tq[c], b, x.hk, jk, c);
      }
    }
  }

  const TangentProblem& problem_;
  const Problem& f_;
  ExpectedTangents sizes_;
};

double norm(const Dense& x) {
  double sum = 0.0;
  for (const double value : x.values) sum += std::isfinite(value) ? value * value : 0.0;
  return std::sqrt(sum);
}

// `size` is asked for where the plain tolerance does not hold.
std::string mismatch(const char* name, const Array& array, const Dense& want, DType dtype,
                     const std::function<const Dense&()>& size) {
  const Dense got = read_sum(array.tensor());
  if (got.values.size() != want.values.size()) return std::string(name) + ": wrong shape\n";
  const Tolerance t = tolerance_of(array.dtype() == DType::f64 ? dtype : array.dtype());
  double sum = 0.0, worst = 0.0;
  std::size_t place = 0;
  char text[200];
  for (std::size_t at = 0; at < want.values.size(); ++at) {
    const double x = got.values[at], y = want.values[at];
    if (std::isfinite(x) != std::isfinite(y)) {
      std::snprintf(text, sizeof(text), "%s[%zu]: expected %.9g, got %.9g\n", name, at, y, x);
      return text;
    }
    const double error = std::isfinite(y) ? std::fabs(x - y) : 0.0;
    sum += error * error;
    if (error > worst) worst = error, place = at;
  }
  const double error = std::sqrt(sum), plain = (t.backward + 2.0 * t.storage) * norm(want);
  if (error <= plain) return {};
  const double allowed = std::max(plain, kRounding * tolerance_of(dtype).eps * norm(size()));
  if (error <= allowed) return {};
  std::snprintf(text, sizeof(text), "%s: error %.3g exceeds %.3g (norm %.3g); worst [%zu]: expected %.9g, got %.9g\n",
                name, error, allowed, norm(want), place, want.values[place], got.values[place]);
  return text;
}

}  // namespace

std::string TangentMemory::outside_writes() const {
  if (const std::string found = tout.outside_writes(); !found.empty()) return "tout: " + found;
  if (const std::string found = tlse.outside_writes(); !found.empty()) return "tlse: " + found;
  return of.outside_writes();
}

bool has_tangents(const Case& c) {
  return c.gradients && c.values != Values::huge && c.values != Values::extreme && c.values != Values::overflowing &&
         c.values != Values::inf_visible && c.bias != BiasKind::plus_inf;
}

TangentCase::TangentCase(const Instance& instance) : instance_(instance) {
  const Case& c = instance.description();
  const BackwardInputs in = instance.backward_inputs();
  const TangentMemory typed = memory();
  const DType side = accumulation_dtype(c.dtype);
  const Placement placement = c.seed % 2 == 0 ? Placement::aligned : Placement::shifted;
  const auto copy_of = [&](const TensorView& from, const Dense& values) {
    Array array = Array::of_shape<4>(side, from.shape, Array::kNan, placement);
    array.fill([&](auto... index) { return values.at(index...); });
    return array;
  };
  out_ = copy_of(in.out, instance.expected().out);
  dout_ = copy_of(in.dout, read(in.dout));
  Generator some(c.seed, kSome);
  const bool all = some.chance(0.5);
  const auto keeps = [&] { return all || some.chance(0.5); };
  if (keeps()) tq_ = normal_like(typed.of.dq.tensor(), c.dtype, c.seed, kQ);
  if (keeps()) tk_ = normal_like(typed.of.dk.tensor(), c.dtype, c.seed, kK);
  if (keeps()) tv_ = normal_like(typed.of.dv.tensor(), keeps() ? c.dtype : side, c.seed, kV);
  if (typed.of.dbias.exists() && keeps()) {
    MutableTensorView like = typed.of.dbias.tensor();
    for (std::size_t i = 0; i < 4; ++i) {
      if (like.strides[i] == 0) like.shape[i] = std::min<std::int64_t>(like.shape[i], 1);
    }
    tbias_ = normal_like(like, like.dtype, c.seed, kBias);
  }
  if (keeps()) tscale_ = normal_like(typed.of.dscale.tensor(), side, c.seed, kScale);
  if (typed.of.dsinks.exists() && keeps()) tsinks_ = normal_like(typed.of.dsinks.tensor(), side, c.seed, kSinks);
  if (c.values == Values::nan_hidden) {
    const ForwardMemory forward = instance.forward_memory();
    const Visibility seen = visibility_of(make_problem(in.q, in.k, in.v, forward.out_view(), instance.options(), {}));
    if (tq_.exists()) spoil(tq_, seen.rows);
    if (tk_.exists()) spoil(tk_, seen.keys);
    if (tv_.exists()) spoil(tv_, seen.keys);
  }
  expected_ = compute_expected();
}

BackwardInputs TangentCase::inputs() const {
  BackwardInputs in = instance_.backward_inputs();
  in.out = out_.tensor();
  in.dout = dout_.tensor();
  return in;
}

Tangents TangentCase::tangents() const {
  return {.tq = tq_.tensor_or_none(),
          .tk = tk_.tensor_or_none(),
          .tv = tv_.tensor_or_none(),
          .tbias = tbias_.tensor_or_none(),
          .tscale = tscale_.rows_or_none(),
          .tsinks = tsinks_.heads_or_none()};
}

JvpInputs TangentCase::jvp_inputs() const {
  const BackwardInputs in = inputs();
  return {.q = in.q, .k = in.k, .v = in.v, .out = in.out, .lse = in.lse};
}

TangentMemory TangentCase::memory() const {
  const Case& c = instance_.description();
  const DType side = accumulation_dtype(c.dtype);
  TangentMemory m;
  m.of = instance_.gradient_memory();
  m.tout = Array::of_shape<4>(side, {c.batch, c.q_heads, c.n_q, c.d_v}, Array::kMark, Placement::aligned);
  m.tlse = Array::of_shape<3>(side, {c.batch, c.q_heads, c.n_q}, Array::kMark, Placement::aligned);
  return m;
}

ExpectedTangents TangentCase::compute_expected() const {
  const TangentMemory typed = memory();
  TangentProblem p = make_double_backward_problem(inputs(), tangents(), typed.gradients(), instance_.options());
  ExpectedTangents e = zeros(typed);
  if (!p.backward.forward.has_pairs()) return e;
  Gradients& g = p.backward.gradients;
  p.tout = e.tout.tensor();
  p.tlse = e.tlse.rows();
  g.dq = summing_view(e.gradients.dq, g.dq);
  g.dk = summing_view(e.gradients.dk, g.dk);
  g.dv = summing_view(e.gradients.dv, g.dv);
  if (g.dbias.given()) g.dbias = summing_view(e.gradients.dbias, g.dbias);
  g.dscale = summing_view(e.gradients.dscale, g.dscale);
  if (g.dsinks.given()) g.dsinks = summing_view(e.gradients.dsinks, g.dsinks);
  reference::attention_tangents(p);
  return e;
}

namespace {

// Compares the results that `moves` and `gradients` name.
std::string mismatch(const TangentCase& x, const TangentMemory& m, bool gradients) {
  const TangentProblem p =
      make_double_backward_problem(x.inputs(), x.tangents(), m.gradients(), x.instance().options());
  std::unique_ptr<Sizes> sizes;
  const auto sized = [&]() -> const ExpectedTangents& {
    if (!sizes) sizes = std::make_unique<Sizes>(p, m);
    return (*sizes)();
  };
  const ExpectedTangents& e = x.expected();
  const DType dtype = x.instance().description().dtype;
  std::string text = m.outside_writes();
  text += mismatch("tout", m.tout, e.tout, dtype, [&]() -> const Dense& { return sized().tout; });
  text += mismatch("tlse", m.tlse, e.tlse, dtype, [&]() -> const Dense& { return sized().tlse; });
  if (!gradients) return text;
  const auto compare = [&](const char* name, const Array& array, Dense ExpectedGradients::*which) {
    if (!array.exists()) return;
    text +=
        mismatch(name, array, e.gradients.*which, dtype, [&]() -> const Dense& { return sized().gradients.*which; });
  };
  compare("dq", m.of.dq, &ExpectedGradients::dq);
  compare("dk", m.of.dk, &ExpectedGradients::dk);
  compare("dv", m.of.dv, &ExpectedGradients::dv);
  compare("dbias", m.of.dbias, &ExpectedGradients::dbias);
  compare("dscale", m.of.dscale, &ExpectedGradients::dscale);
  compare("dsinks", m.of.dsinks, &ExpectedGradients::dsinks);
  return text;
}

}  // namespace

std::string jvp_mismatch(const TangentCase& x, const Jvp& run) {
  const TangentMemory m = x.memory();
  run(x.jvp_inputs(), x.tangents(), m.jvp(), x.instance().options());
  return mismatch(x, m, /*gradients=*/false);
}

std::string double_backward_mismatch(const TangentCase& x, const DoubleBackward& run) {
  const TangentMemory m = x.memory();
  run(x.inputs(), x.tangents(), m.gradients(), x.instance().options());
  return mismatch(x, m, /*gradients=*/true);
}

}  // namespace keel::conformance
