#include <cmath>
#include <vector>

#include "reference/accumulator.h"
#include "reference/reference.h"
#include "reference/row.h"

namespace keel::reference {
namespace {

// The derivatives along the tangents of forward.cc and, with dout, of backward.cc, each formula next to the line it
// differentiates. What moves has a leading t.
class Tangent {
 public:
  explicit Tangent(const TangentProblem& problem)
      : problem_(problem),
        f_(problem.backward.forward),
        g_(problem.backward.gradients),
        t_(problem.tangents),
        tout_(problem.tout, g_.accumulate),
        dq_(g_.dq, g_.accumulate),
        dk_(g_.dk, g_.accumulate),
        dv_(g_.dv, g_.accumulate),
        dbias_(g_.dbias, g_.accumulate),
        tlse_(problem.tlse, g_.accumulate),
        dscale_(g_.dscale, g_.accumulate),
        dsinks_(g_.dsinks, g_.accumulate) {}

  void operator()() {
    for (std::int64_t e = 0; e < f_.entries(); ++e) {
      for (std::int64_t h = 0; h < f_.q_heads; ++h) take_head(e, h);
    }
    tout_.write(), tlse_.write();
    dq_.write(), dk_.write(), dv_.write(), dbias_.write(), dscale_.write(), dsinks_.write();
  }

 private:
  // One head of one entry as float64; 0 for what does not move.
  struct Head {
    Entry entry;
    std::int64_t e, h, hk;
    std::vector<double> q, k, v, dout, tq, tk, tv;
  };
  // One row: how it moves.
  struct Moves {
    double scale = 0.0, sink = 0.0, lse = 0.0;
    std::vector<double> x, s, out;  // of scale·(q·k), of the score, of the output
  };

  std::vector<double> rows_or_zeros(const TensorView& view, std::int64_t b, std::int64_t h, std::int64_t begin,
                                    std::int64_t rows, std::int64_t d) const {
    if (view.given()) return head_rows(view, b, h, begin, rows);
    return std::vector<double>(static_cast<std::size_t>(rows * d), 0.0);
  }

  void take_head(std::int64_t e, std::int64_t h) {
    const Entry n = f_.entry(e);
    const std::int64_t b = n.batch, hk = f_.kv_head(h), d_k = f_.d_k, d_v = f_.d_v;
    const Head head{.entry = n,
                    .e = e,
                    .h = h,
                    .hk = hk,
                    .q = head_rows(f_.q, b, h, n.q_begin, n.q_rows),
                    .k = head_rows(f_.k, b, hk, n.k_begin, n.k_len),
                    .v = head_rows(f_.v, b, hk, n.k_begin, n.k_len),
                    .dout = rows_or_zeros(problem_.backward.dout, b, h, n.q_begin, n.q_rows, d_v),
                    .tq = rows_or_zeros(t_.tq, b, h, n.q_begin, n.q_rows, d_k),
                    .tk = rows_or_zeros(t_.tk, b, hk, n.k_begin, n.k_len, d_k),
                    .tv = rows_or_zeros(t_.tv, b, hk, n.k_begin, n.k_len, d_v)};
    Row row;
    for (std::int64_t i = 0; i < n.q_len; ++i) {
      compute_row(f_, {e, h, i}, head.q.data() + i * d_k, head.k.data(), row);
      const bool slice = !f_.sequences.has_all_keys();
      const double lse = slice ? load_at(problem_.backward.lse, b, h, n.q_begin + i) : row.lse;
      if (slice ? lse == -INFINITY : row.count == 0) continue;  // a fully masked row does not move
      if (slice) take_lse(lse, row);
      const Moves moves = move(head, i, row);
      if (problem_.is_double) differentiate_backward(head, i, row, moves);
    }
  }

  // The forward pass along the tangents.
  Moves move(const Head& head, std::int64_t i, const Row& row) {
    const Entry& entry = head.entry;
    const std::int64_t b = entry.batch, h = head.h, iq = entry.q_begin + i, d_k = f_.d_k, d_v = f_.d_v;
    const double *const qi = head.q.data() + i * d_k, *const tqi = head.tq.data() + i * d_k;
    Moves m;
    m.scale = t_.tscale.given() ? load_at(t_.tscale, b, h, iq) : 0.0;
    m.sink = t_.tsinks.given() ? load_at(t_.tsinks, h) : 0.0;
    m.x.assign(row.p.size(), 0.0), m.s = m.x;
    m.out.assign(static_cast<std::size_t>(d_v), 0.0);
    std::vector<double> o = m.out;

    // pass 1: x = scale·(q·k), s = softcap(x) + bias    pass 2: lse = log(Σ exp(s) + exp(sink))
    m.lse = t_.tsinks.given() ? row.p_sink * m.sink : 0.0;
    for (std::int64_t j = 0; j < entry.k_len; ++j) {
      if (!row.visible[j]) continue;
      double tdot = 0.0;
      for (std::int64_t c = 0; c < d_k; ++c) tdot += tqi[c] * head.k[j * d_k + c] + qi[c] * head.tk[j * d_k + c];
      m.x[j] = row.scale * tdot + m.scale * row.dot[j];
      m.s[j] = row.slope[j] * m.x[j];
      if (t_.tbias.given()) m.s[j] += load_at(t_.tbias, b, h, iq, entry.k_begin + j);
      m.lse += row.p[j] * m.s[j];
    }

    // pass 4: o = Σ p·z·v, where p = exp(s − lse)
    for (std::int64_t j = 0; j < entry.k_len; ++j) {
      if (!row.visible[j]) continue;
      const double w = row.p[j] * row.z[j];
      const double shift = f_.sequences.has_all_keys() ? m.lse : 0.0;
      for (std::int64_t c = 0; c < d_v; ++c) {
        m.out[c] += w * ((m.s[j] - shift) * head.v[j * d_v + c] + head.tv[j * d_v + c]);
      }
    }
    for (std::int64_t c = 0; c < d_v; ++c) {
      if (!f_.sequences.has_all_keys()) m.out[c] -= m.lse * load_at(f_.out, b, h, iq, c);
      if (tout_.wanted()) tout_.add(m.out[c], b, h, iq, c);
    }
    if (tlse_.wanted()) tlse_.add(m.lse, b, h, iq);
    return m;
  }

  // The backward pass along the tangents, in the order of backward.cc.
  void differentiate_backward(const Head& head, std::int64_t i, const Row& row, const Moves& m) {
    const Entry& entry = head.entry;
    const std::int64_t b = entry.batch, h = head.h, hk = head.hk, iq = entry.q_begin + i, d_k = f_.d_k, d_v = f_.d_v;
    const double *const qi = head.q.data() + i * d_k, *const tqi = head.tq.data() + i * d_k;
    const double* const doi = head.dout.data() + i * d_v;

    // pass 4: dv += p·z·do    dp = z·(do·v)    δ = Σ p·dp − dlse
    std::vector<double> dp(row.p.size(), 0.0), tdp = dp;
    double delta = problem_.backward.dlse.given() ? -load_at(problem_.backward.dlse, b, h, iq) : 0.0, tdelta = 0.0;
    for (std::int64_t j = 0; j < entry.k_len; ++j) {
      if (!row.visible[j]) continue;
      const double tw = row.p[j] * (m.s[j] - m.lse) * row.z[j];
      for (std::int64_t c = 0; c < d_v; ++c) {
        dp[j] += row.z[j] * doi[c] * head.v[j * d_v + c];
        tdp[j] += row.z[j] * doi[c] * head.tv[j * d_v + c];
        if (dv_.wanted()) dv_.add(tw * doi[c], b, hk, entry.k_begin + j, c);
      }
      delta += row.p[j] * dp[j];
    }
    for (std::int64_t c = 0; c < d_v; ++c) tdelta += doi[c] * m.out[c];

    // pass 2: ds = p·(dp − δ), likewise for the sink, whose dp is 0
    if (dsinks_.wanted()) dsinks_.add(-row.p_sink * ((m.sink - m.lse) * delta + tdelta), h);
    for (std::int64_t j = 0; j < entry.k_len; ++j) {
      if (!row.visible[j]) continue;
      const std::int64_t jk = entry.k_begin + j;
      const double ds = row.p[j] * (dp[j] - delta);
      const double tds = (m.s[j] - m.lse) * ds + row.p[j] * (tdp[j] - tdelta);
      if (dbias_.wanted()) dbias_.add(tds, b, h, iq, jk);

      // pass 1: dx = slope·ds    dscale += dx·(q·k)    dq += scale·dx·k    dk += scale·dx·q
      const double dx = row.slope[j] * ds, tdx = row.bend[j] * m.x[j] * ds + row.slope[j] * tds;
      double tdot = 0.0;
      for (std::int64_t c = 0; c < d_k; ++c) {
        const double kc = head.k[j * d_k + c], tkc = head.tk[j * d_k + c];
        tdot += tqi[c] * kc + qi[c] * tkc;
        if (dq_.wanted()) dq_.add((row.scale * tdx + m.scale * dx) * kc + row.scale * dx * tkc, b, h, iq, c);
        if (dk_.wanted()) dk_.add((row.scale * tdx + m.scale * dx) * qi[c] + row.scale * dx * tqi[c], b, hk, jk, c);
      }
      if (dscale_.wanted()) dscale_.add(tdx * row.dot[j] + dx * tdot, b, h, iq);
    }
  }

  const TangentProblem& problem_;
  const Problem& f_;
  const Gradients& g_;
  const Tangents& t_;
  Accumulator<4> tout_, dq_, dk_, dv_, dbias_;
  Accumulator<3> tlse_, dscale_;
  Accumulator<1> dsinks_;
};

}  // namespace

void attention_tangents(const TangentProblem& problem) { Tangent{problem}(); }

}  // namespace keel::reference
