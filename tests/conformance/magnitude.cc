#include "conformance/magnitude.h"

#include <cmath>

#include "core/masked_score.h"
#include "core/problem.h"
#include "reference/row.h"

namespace keel::conformance {
namespace {

struct SizedRow {
  reference::Row row;
  std::vector<double> dot_size;    // Σ |q·k|
  std::vector<double> score_size;  // a_j
  double mean = 0.0;               // Σ p·a
};

template <class Visit>
void for_rows(const Problem& p, Visit visit) {
  SizedRow sized;
  reference::Row& row = sized.row;
  const Options& o = p.options;
  for (std::int64_t e = 0; e < p.entries(); ++e) {
    const Entry entry = p.entry(e);
    for (std::int64_t h = 0; h < p.q_heads; ++h) {
      const auto q = reference::head_rows(p.q, entry.batch, h, entry.q_begin, entry.q_rows);
      const auto k = reference::head_rows(p.k, entry.batch, p.kv_head(h), entry.k_begin, entry.k_len);
      for (std::int64_t i = 0; i < entry.q_rows; ++i) {
        const double* const qi = q.data() + i * p.d_k;
        reference::compute_row(p, {e, h, i}, qi, k.data(), row);
        if (row.count == 0) continue;
        sized.dot_size.assign(row.p.size(), 0.0);
        sized.score_size.assign(row.p.size(), 0.0);
        sized.mean = o.sinks.given() ? row.p_sink * std::fabs(row.sink) : 0.0;
        for (std::int64_t j = 0; j < entry.k_len; ++j) {
          if (!row.visible[j]) continue;
          double size = 0.0;
          for (std::int64_t c = 0; c < p.d_k; ++c) size += std::fabs(qi[c] * k[j * p.d_k + c]);
          sized.dot_size[j] = size;
          size *= std::fabs(row.scale);
          if (o.softcap && row.slope[j] == 0.0) size = 0.0;  // even where it is infinite
          if (o.softcap) size = size * row.slope[j] + *o.softcap;
          if (o.alibi.given()) {
            size += std::fabs(load_at(o.alibi, entry.batch, h)) * static_cast<double>(std::abs(i + entry.diagonal - j));
          }
          const double bias = reference::bias_at(p, entry, h, i, j);
          size =
              bias <= kMaskedScore ? 0.0 : size + std::fabs(bias);  // no dtype shows the other terms beside such a bias
          sized.score_size[j] = size;
          if (row.p[j] != 0.0) sized.mean += row.p[j] * size;  // an infinite score of −inf has no weight, and no error
        }
        visit(entry, h, i, sized);
      }
    }
  }
}

Problem problem_of(const Instance& instance, const ForwardMemory& memory) {
  return make_problem(instance.q(), instance.k(), instance.v(), memory.out_view(), instance.options(), {});
}

void add(Magnitude& x, double value, double factor, std::int64_t b, std::int64_t h = 0, std::int64_t i = 0,
         std::int64_t j = 0) {
  if (x.plain.values.empty()) return;
  const auto& shape = x.plain.shape;
  const std::size_t at =
      x.plain.place(shape[0] == 1 ? 0 : b, shape[1] == 1 ? 0 : h, shape[2] == 1 ? 0 : i, shape[3] == 1 ? 0 : j);
  x.plain.values[at] += value;
  if (value != 0.0) x.amplified.values[at] += value * factor;  // likewise
}

Magnitude like(const Dense& x) {
  Magnitude m{x, x};
  m.plain.values.assign(x.values.size(), 0.0);
  m.amplified.values.assign(x.values.size(), 0.0);
  return m;
}

}  // namespace

ForwardMagnitudes compute_magnitudes(const Instance& instance) {
  const ForwardMemory memory = instance.forward_memory();
  const Problem p = problem_of(instance, memory);
  const Expected& e = instance.expected();
  ForwardMagnitudes m{like(e.out), like(e.weights), like(e.key_sums), Dense(e.lse.shape), Dense(e.lse.shape)};
  for_rows(p, [&](const Entry& entry, std::int64_t h, std::int64_t i, const SizedRow& sized) {
    const std::int64_t b = entry.batch, iq = entry.q_begin + i;
    const bool summed = i >= first_summed_row(entry, instance.description().key_sum_rows);
    for (std::int64_t j = 0; j < entry.k_len; ++j) {
      if (!sized.row.visible[j]) continue;
      const std::int64_t jk = entry.k_begin + j;
      const double w = sized.row.p[j] * sized.row.z[j];
      const double factor = 1.0 + sized.score_size[j] + sized.mean;
      const auto raise = [&](Dense& to) { to.at(b, h, iq) = std::max(to.at(b, h, iq), sized.score_size[j]); };
      if (sized.row.p[j] != 0.0 || sized.row.s[j] == sized.row.m) raise(m.score);
      if (!(sized.row.s[j] <= kMaskedScore)) raise(m.counted);
      add(m.weights, w, factor, b, h, iq, jk);
      if (summed) add(m.key_sums, sized.row.p[j], factor, b, h, jk);
      for (std::int64_t c = 0; c < p.d_v; ++c) {
        add(m.out, w * std::fabs(load_at(p.v, b, p.kv_head(h), jk, c)), factor, b, h, iq, c);
      }
    }
  });
  return m;
}

Dense compute_score_sizes(const Instance& instance) {
  const ForwardMemory memory = instance.forward_memory();
  const Problem p = problem_of(instance, memory);
  const Options& o = p.options;
  const ScoreStage stage = *instance.description().scores;
  Dense sizes({p.batch, p.q_heads, p.n_q, p.n_k});
  const auto size_of = [&](const Entry& entry, std::int64_t h, std::int64_t i, std::int64_t j) {
    const std::int64_t b = entry.batch, iq = entry.q_begin + i, jk = entry.k_begin + j;
    const double scale = o.scale_tensor.given() ? load_at(o.scale_tensor, b, h, iq) : p.scale;
    double dot = 0.0, size = 0.0;
    for (std::int64_t c = 0; c < p.d_k; ++c) {
      const double term = load_at(p.q, b, h, iq, c) * load_at(p.k, b, p.kv_head(h), jk, c);
      dot += term, size += std::fabs(term);
    }
    size *= std::fabs(scale);
    if (o.softcap && stage != ScoreStage::raw) {
      const double t = std::tanh(scale * dot / *o.softcap), slope = 1.0 - t * t;
      size = (slope == 0.0 ? 0.0 : size * slope) + *o.softcap;
    }
    if (stage != ScoreStage::masked) return size;
    if (o.alibi.given())
      size += std::fabs(load_at(o.alibi, b, h)) * static_cast<double>(std::abs(i + entry.diagonal - j));
    return size + std::fabs(reference::bias_at(p, entry, h, i, j));
  };
  for (std::int64_t e = 0; e < p.entries(); ++e) {
    const Entry entry = p.entry(e);
    for (std::int64_t h = 0; h < p.q_heads; ++h) {
      for (std::int64_t i = 0; i < entry.q_rows; ++i) {
        for (std::int64_t j = 0; j < entry.k_len; ++j) {
          sizes.at(entry.batch, h, entry.q_begin + i, entry.k_begin + j) = size_of(entry, h, i, j);
        }
      }
    }
  }
  return sizes;
}

GradientMagnitudes compute_gradient_magnitudes(const Instance& instance) {
  const ForwardMemory memory = instance.forward_memory();
  const Problem p = problem_of(instance, memory);
  const BackwardInputs in = instance.backward_inputs();
  const ExpectedGradients& e = instance.expected_gradients();
  GradientMagnitudes m{like(e.dq),     like(e.dk),     like(e.dv),       like(e.dbias),
                       like(e.dscale), like(e.dsinks), like(e.drelative)};
  std::vector<double> dp;
  for_rows(p, [&](const Entry& entry, std::int64_t h, std::int64_t i, const SizedRow& sized) {
    const reference::Row& row = sized.row;
    const std::int64_t b = entry.batch, hk = p.kv_head(h), iq = entry.q_begin + i;
    const double dlse = in.dlse.given() ? std::fabs(load_at(in.dlse, b, h, iq)) : 0.0;
    dp.assign(row.p.size(), 0.0);
    double D = 0.0;
    for (std::int64_t j = 0; j < entry.k_len; ++j) {
      if (!row.visible[j]) continue;
      for (std::int64_t c = 0; c < p.d_v; ++c) {
        const double doc = std::fabs(load_at(in.dout, b, h, iq, c));
        dp[j] += row.z[j] * doc * std::fabs(load_at(p.v, b, hk, entry.k_begin + j, c));
        add(m.dv, row.p[j] * row.z[j] * doc, 1.0 + sized.score_size[j] + sized.mean, b, hk, entry.k_begin + j, c);
      }
      D += row.p[j] * dp[j];
    }
    add(m.dsinks, row.p_sink * (D + dlse), 1.0 + std::fabs(row.sink) + sized.mean, h);
    for (std::int64_t j = 0; j < entry.k_len; ++j) {
      if (!row.visible[j]) continue;
      const std::int64_t jk = entry.k_begin + j;
      const double ds = row.p[j] * (dp[j] + D + dlse);
      const double factor = 1.0 + sized.score_size[j] + sized.mean;
      add(m.dbias, ds, factor, b, h, iq, jk);
      if (p.options.relative_bias.given()) {
        add(m.drelative, ds, factor, h, reference::distance_at(p, entry, i, j));
      }
      const double dx = ds * (row.slope[j] + (p.options.softcap ? 1.0 : 0.0));  // 1 − tanh² is rounded near 1
      add(m.dscale, dx * sized.dot_size[j], factor, b, h, iq);
      for (std::int64_t c = 0; c < p.d_k; ++c) {
        const double dy = dx * std::fabs(row.scale);
        add(m.dq, dy * std::fabs(load_at(p.k, b, hk, jk, c)), factor, b, h, iq, c);
        add(m.dk, dy * std::fabs(load_at(p.q, b, h, iq, c)), factor, b, hk, jk, c);
      }
    }
  });
  return m;
}

}  // namespace keel::conformance
