#include <cmath>
#include <vector>

#include "reference/accumulator.h"
#include "reference/reference.h"
#include "reference/row.h"

namespace keel::reference {
// Gradients of forward.cc, each formula next to the line it differentiates. The weights are recomputed from q and k.
// The given out and lse are read only if k is a slice of the keys: they are those of all keys.
void attention_backward(const BackwardProblem& problem) {
  const Problem& f = problem.forward;
  const Gradients& g = problem.gradients;
  const std::int64_t d_k = f.d_k, d_v = f.d_v;
  const bool add = g.accumulate;
  Accumulator<4> dq_sum(g.dq, add), dk_sum(g.dk, add), dv_sum(g.dv, add), dbias_sum(g.dbias, add);
  Accumulator<3> dscale_sum(g.dscale, add);
  Accumulator<2> drelative_sum(g.drelative_bias, add);
  Accumulator<1> dsinks_sum(g.dsinks, add);
  Row row;
  std::vector<double> dp;
  for (std::int64_t e = 0; e < f.entries(); ++e) {
    const Entry entry = f.entry(e);
    const std::int64_t b = entry.batch;
    for (std::int64_t h = 0; h < f.q_heads; ++h) {
      const std::int64_t hk = f.kv_head(h);
      const auto q = head_rows(f.q, b, h, entry.q_begin, entry.q_rows);
      const auto k = head_rows(f.k, b, hk, entry.k_begin, entry.k_len);
      const auto v = head_rows(f.v, b, hk, entry.k_begin, entry.k_len);
      const auto dout = head_rows(problem.dout, b, h, entry.q_begin, entry.q_rows);
      for (std::int64_t i = 0; i < entry.q_len; ++i) {
        const std::int64_t iq = entry.q_begin + i;
        const double* const qi = q.data() + i * d_k;
        const double* const doi = dout.data() + i * d_v;
        compute_row(f, {e, h, i}, qi, k.data(), row);
        const bool slice = !f.sequences.has_all_keys();
        const double lse = slice ? load_at(problem.lse, b, h, iq) : row.lse;
        if (slice ? lse == -INFINITY : row.count == 0) continue;  // a fully masked row has no gradient
        if (slice) take_lse(lse, row);

        // pass 4: o = Σ p·z·v    dv += p·z·do    dp = z·(do·v)
        dp.assign(row.p.size(), 0.0);
        double D = 0.0;  // Σ p·dp = do·o
        for (std::int64_t j = 0; j < entry.k_len; ++j) {
          if (!row.visible[j]) continue;
          double dov = 0.0;
          for (std::int64_t c = 0; c < d_v; ++c) dov += doi[c] * v[j * d_v + c];
          dp[j] = row.z[j] * dov;
          D += row.p[j] * dp[j];
          if (!dv_sum.wanted()) continue;
          for (std::int64_t c = 0; c < d_v; ++c) {
            dv_sum.add(row.p[j] * row.z[j] * doi[c], b, hk, entry.k_begin + j, c);
          }
        }
        if (slice) {
          D = 0.0;
          for (std::int64_t c = 0; c < d_v; ++c) D += doi[c] * load_at(f.out, b, h, iq, c);
        }
        const double dlse = problem.dlse.given() ? load_at(problem.dlse, b, h, iq) : 0.0;

        // pass 2: p = exp(s − lse)    ds = p·(dp − D + dlse), likewise for the sink, whose dp is 0
        if (dsinks_sum.wanted()) dsinks_sum.add(row.p_sink * (dlse - D), h);
        for (std::int64_t j = 0; j < entry.k_len; ++j) {
          if (!row.visible[j]) continue;
          const double ds = row.p[j] * (dp[j] - D + dlse);
          const std::int64_t jk = entry.k_begin + j;

          // pass 1: s = c·tanh(scale·(q·k)/c) + bias    slope = 1 − tanh²
          if (dbias_sum.wanted()) dbias_sum.add(ds, b, h, iq, jk);
          if (drelative_sum.wanted()) drelative_sum.add(ds, h, distance_at(f, entry, i, j));
          const double dx = ds * row.slope[j];
          if (dscale_sum.wanted()) dscale_sum.add(dx * row.dot[j], b, h, iq);
          for (std::int64_t c = 0; c < d_k; ++c) {
            if (dq_sum.wanted()) dq_sum.add(dx * row.scale * k[j * d_k + c], b, h, iq, c);
            if (dk_sum.wanted()) dk_sum.add(dx * row.scale * qi[c], b, hk, jk, c);
          }
        }
      }
    }
  }
  dq_sum.write();
  dk_sum.write();
  dv_sum.write();
  dbias_sum.write();
  dscale_sum.write();
  drelative_sum.write();
  dsinks_sum.write();
}

}  // namespace keel::reference
