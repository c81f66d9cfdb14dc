#include <cmath>
#include <vector>

#include "core/masked_score.h"
#include "reference/reference.h"
#include "reference/row.h"

namespace keel::reference {
namespace {

// x·log(x) and its limit at 0; NaN stays NaN.
double x_log_x(double x) { return x == 0.0 ? 0.0 : x * std::log(x); }

// The statistics of row (b, h, iq) of the tensors. These lines define them.
void report(const Outputs& out, const Row& row, std::int64_t b, std::int64_t h, std::int64_t iq) {
  const bool masked = row.count == 0;
  const auto put = [&](const MutableRowView& view, double value) {
    if (view.given()) store_at(view, value, b, h, iq);
  };
  put(out.visible, static_cast<double>(row.count));
  put(out.lse, row.lse);
  put(out.max_logit, row.m);
  put(out.max_weight, row.p_max);
  double entropy = -x_log_x(row.p_sink);
  for (const double p : row.p) entropy -= x_log_x(p);
  put(out.entropy, masked ? 0.0 : entropy);

  const auto counts = [&](std::size_t j) { return row.visible[j] && !(row.s[j] <= kMaskedScore); };
  const double from = std::isfinite(row.m) ? row.m : 0.0;  // equal scores then have variance 0, however large they are
  double number = 0.0, mean = 0.0, var = 0.0;
  for (std::size_t j = 0; j < row.s.size(); ++j) number += counts(j) ? 1.0 : 0.0;
  put(out.logit_count, number);
  for (std::size_t j = 0; j < row.s.size(); ++j) {
    if (counts(j)) mean += (row.s[j] - from) / number;
  }
  for (std::size_t j = 0; j < row.s.size(); ++j) {
    const double d = row.s[j] - from - mean;
    if (counts(j)) var += d * d / number;
  }
  const bool undefined = !masked && row.m == -INFINITY;  // nothing but −inf, by arithmetic
  put(out.logit_mean, undefined ? NAN : number == 0.0 ? 0.0 : from + mean);
  put(out.logit_var, undefined ? NAN : var);
}

// Σ_i p_ij for the keys of one head of one entry.
class KeySums {
 public:
  KeySums(const Problem& problem, const Entry& entry)
      : problem_(problem), entry_(entry), sums_(static_cast<std::size_t>(entry.k_len), 0.0) {}

  void add(const Row& row, std::int64_t i) {
    if (!problem_.outputs.key_sums.given() || i >= entry_.q_len) return;
    if (i < first_summed_row(entry_, problem_.outputs.key_sum_rows)) return;
    for (std::size_t j = 0; j < sums_.size(); ++j) sums_[j] += row.p[j];  // 0 where it is hidden
  }

  void write(std::int64_t h) const {
    if (!problem_.outputs.key_sums.given()) return;
    const std::int64_t keys = problem_.sequences.packed() ? entry_.k_len : problem_.n_k;  // padding included
    for (std::int64_t j = 0; j < keys; ++j) {
      store_at(problem_.outputs.key_sums, j < entry_.k_len ? sums_[static_cast<std::size_t>(j)] : 0.0, entry_.batch, h,
               entry_.k_begin + j);
    }
  }

 private:
  const Problem& problem_;
  const Entry entry_;
  std::vector<double> sums_;
};

// The scores of a row at the stage that is asked for; q (d_k) and k (k_len, d_k) as float64.
void report_scores(const Problem& p, const RowIndex& index, const double* q, const double* k, const Row& row) {
  const auto [e, h, i] = index;
  const Entry entry = p.entry(e);
  for (std::int64_t jk = 0; jk < p.n_k; ++jk) {
    const std::int64_t j = jk - entry.k_begin;
    double s = -INFINITY;
    if (i < entry.q_len && j >= entry.k_start && j < entry.k_len) {
      if (p.outputs.score_stage == ScoreStage::masked) {
        if (row.visible[static_cast<std::size_t>(j)]) s = row.s[static_cast<std::size_t>(j)];
      } else {
        double dot = 0.0;
        for (std::int64_t c = 0; c < p.d_k; ++c) dot += q[c] * k[j * p.d_k + c];
        s = row.scale * dot;
        if (p.outputs.score_stage == ScoreStage::capped && p.options.softcap) {
          s = *p.options.softcap * std::tanh(s / *p.options.softcap);
        }
      }
    }
    store_at(p.outputs.scores, s, entry.batch, h, entry.q_begin + i, jk);
  }
}

}  // namespace

void attention(const Problem& problem) {
  const Outputs& outputs = problem.outputs;
  Row row;
  std::vector<double> o(static_cast<std::size_t>(problem.d_v));
  for (std::int64_t e = 0; e < problem.entries(); ++e) {
    const Entry entry = problem.entry(e);
    const std::int64_t b = entry.batch;
    for (std::int64_t h = 0; h < problem.q_heads; ++h) {
      const auto q = head_rows(problem.q, b, h, entry.q_begin, entry.q_rows);
      const auto k = head_rows(problem.k, b, problem.kv_head(h), entry.k_begin, entry.k_len);
      const auto v = head_rows(problem.v, b, problem.kv_head(h), entry.k_begin, entry.k_len);
      KeySums sums(problem, entry);
      for (std::int64_t i = 0; i < entry.q_rows; ++i) {
        const std::int64_t iq = entry.q_begin + i;
        compute_row(problem, {e, h, i}, q.data() + i * problem.d_k, k.data(), row);  // passes 1 to 3

        // pass 4: o = Σ p·z·v over the visible keys
        o.assign(o.size(), 0.0);
        for (std::int64_t j = 0; j < entry.k_len; ++j) {
          if (!row.visible[j]) continue;
          for (std::int64_t c = 0; c < problem.d_v; ++c) o[c] += row.p[j] * row.z[j] * v[j * problem.d_v + c];
        }
        for (std::int64_t c = 0; c < problem.d_v; ++c) store_at(problem.out, o[c], b, h, iq, c);
        report(outputs, row, b, h, iq);
        sums.add(row, i);
        if (outputs.scores.given()) report_scores(problem, {e, h, i}, q.data() + i * problem.d_k, k.data(), row);
        if (outputs.weights.given()) {
          for (std::int64_t j = 0; j < problem.n_k; ++j) {
            const bool own = j >= entry.k_begin && j < entry.k_begin + entry.k_len;
            const double weight = own ? row.p[j - entry.k_begin] * row.z[j - entry.k_begin] : 0.0;
            store_at(outputs.weights, weight, b, h, iq, j);
          }
        }
      }
      sums.write(h);
    }
  }
}

}  // namespace keel::reference
