#include "conformance/expected.h"

#include <algorithm>
#include <cmath>

#include "core/problem.h"
#include "reference/reference.h"

namespace keel::conformance {
namespace {

// The definitions in keel/attention.h, from rows in float64.
HeadStatistics reduce_head(const Problem& p, const Expected& e, std::int64_t index, std::int64_t h, double threshold) {
  const Entry entry = p.entry(index);
  std::vector<double> entropies, normalised;
  HeadStatistics head{.max_logit = -INFINITY};
  bool nan = false;
  for (std::int64_t i = entry.q_begin; i < entry.q_begin + entry.q_rows; ++i) {
    const double visible = e.visible.at(entry.batch, h, i);
    if (visible == 0.0) continue;
    const double logit = e.max_logit.at(entry.batch, h, i);
    nan = nan || std::isnan(logit);
    head.max_logit = std::fmax(head.max_logit, logit);
    entropies.push_back(e.entropy.at(entry.batch, h, i));
    const double outcomes = visible + (p.options.sinks.given() ? 1.0 : 0.0);
    if (outcomes >= 2.0) normalised.push_back(entropies.back() / std::log(outcomes));
    const double max_weight = e.max_weight.at(entry.batch, h, i);
    head.saturated += std::isnan(max_weight) ? NAN : max_weight > threshold ? 1.0 : 0.0;
    ++head.rows;
  }
  if (nan) head.max_logit = NAN;
  if (entropies.empty()) return head;
  const auto n = static_cast<double>(entropies.size());
  for (const double entropy : entropies) head.mean_entropy += entropy / n;
  head.min_entropy = std::isnan(head.mean_entropy) ? NAN : *std::min_element(entropies.begin(), entropies.end());
  for (const double x : normalised) head.normalised_entropy += x / static_cast<double>(normalised.size());
  head.saturated /= n;
  return head;
}

// A float64 view of `sum` that adds up wherever `like` does.
template <std::size_t Rank>
BasicView<Rank, void*> summing_view(Dense& sum, const BasicView<Rank, void*>& like) {
  BasicView<Rank, void*> view{sum.values.data(), DType::f64, like.shape, {}};
  const auto strides = contiguous_strides(sum.shape);
  for (std::size_t i = 0; i < Rank; ++i) view.strides[i] = sum.shape[i] == like.shape[i] ? strides[i] : 0;
  return view;
}

}  // namespace

Expected compute_expected(const Instance& instance) {
  const Case& c = instance.description();
  const ForwardMemory typed = instance.forward_memory();  // for validation only
  Problem p = make_problem(instance.q(), instance.k(), instance.v(), typed.out_view(), instance.options(), {});
  Expected e;
  const std::array<std::int64_t, 4> rows = {c.batch, c.q_heads, c.n_q, 1};
  e.out = Dense({c.batch, c.q_heads, c.n_q, c.d_v});
  e.weights = Dense({c.batch, c.q_heads, c.n_q, c.n_k});
  e.key_sums = Dense({c.batch, c.q_heads, c.n_k, 1});
  if (c.scores) e.scores = Dense(e.weights.shape);
  for (Dense* x :
       {&e.lse, &e.max_logit, &e.entropy, &e.max_weight, &e.logit_mean, &e.logit_var, &e.visible, &e.logit_count}) {
    *x = Dense(rows);
  }
  p.out = e.out.tensor();
  p.outputs = {.lse = e.lse.rows(),
               .max_logit = e.max_logit.rows(),
               .entropy = e.entropy.rows(),
               .max_weight = e.max_weight.rows(),
               .logit_mean = e.logit_mean.rows(),
               .logit_var = e.logit_var.rows(),
               .visible = e.visible.rows(),
               .logit_count = e.logit_count.rows(),
               .weights = e.weights.tensor(),
               .heads = {},
               .key_sums = e.key_sums.rows(),
               .key_sum_rows = c.key_sum_rows,
               .scores = c.scores ? e.scores.tensor() : MutableTensorView{},
               .score_stage = c.scores.value_or(ScoreStage::raw)};
  reference::attention(p);
  for (std::int64_t index = 0; index < p.entries(); ++index) {
    for (std::int64_t h = 0; h < c.q_heads; ++h) {
      e.heads.push_back(reduce_head(p, e, index, h, p.outputs.saturation_threshold));
    }
  }
  return e;
}

ExpectedGradients compute_expected_gradients(const Instance& instance) {
  const GradientMemory typed = instance.gradient_memory();
  BackwardProblem p = make_backward_problem(instance.backward_inputs(), typed.gradients(), instance.options());
  ExpectedGradients e;
  Gradients& g = p.gradients;
  e.dq = Dense(typed.dq.shape());
  e.dk = Dense(typed.dk.shape());
  e.dv = Dense(typed.dv.shape());
  if (typed.dbias.exists()) e.dbias = Dense(read_sum(typed.dbias.tensor()).shape);
  e.dscale = Dense(typed.dscale.shape());
  if (typed.dsinks.exists()) e.dsinks = Dense(typed.dsinks.shape());
  if (typed.drelative.exists()) e.drelative = Dense(typed.drelative.shape());
  if (!p.forward.has_pairs()) return e;
  g.dq = summing_view(e.dq, g.dq);
  g.dk = summing_view(e.dk, g.dk);
  g.dv = summing_view(e.dv, g.dv);
  if (g.dbias.given()) g.dbias = summing_view(e.dbias, g.dbias);
  g.dscale = summing_view(e.dscale, g.dscale);
  if (g.dsinks.given()) g.dsinks = summing_view(e.dsinks, g.dsinks);
  if (g.drelative_bias.given()) g.drelative_bias = summing_view(e.drelative, g.drelative_bias);
  reference::attention_backward(p);
  return e;
}

}  // namespace keel::conformance
