#include "api/heads.h"

#include <cmath>

#include "core/element.h"

namespace keel {

HeadRows::HeadRows(Problem& problem) {
  Outputs& out = problem.outputs;
  if (out.heads.empty()) return;
  const std::array<std::int64_t, 3> shape = {problem.batch, problem.q_heads, problem.n_q};
  const std::int64_t rows = shape[0] * shape[1] * shape[2];
  MutableRowView* const needed[] = {&out.max_logit, &out.entropy, &out.max_weight, &out.visible};
  constexpr std::int64_t kItem = 8;  // bytes, enough for any of them
  memory_.resize(static_cast<std::size_t>(rows * kItem) * std::size(needed));
  std::byte* free = memory_.data();
  for (MutableRowView* view : needed) {
    if (view->given()) continue;
    const DType dtype = view == &out.visible ? DType::i64 : accumulation_dtype(problem.dtype);
    *view = {free, dtype, shape, contiguous_strides(shape)};
    free += rows * kItem;
  }
}

void HeadRows::reduce(const Problem& problem) const {
  const Outputs& out = problem.outputs;
  if (out.heads.empty()) return;
  const double sink = problem.options.sinks.given() ? 1.0 : 0.0;
  for (std::int64_t e = 0; e < problem.entries(); ++e) {
    const Entry entry = problem.entry(e);
    for (std::int64_t h = 0; h < problem.q_heads; ++h) {
      HeadStatistics head{.max_logit = -INFINITY, .min_entropy = INFINITY};
      std::int64_t choosing = 0;  // rows with at least two outcomes
      for (std::int64_t i = 0; i < entry.q_len; ++i) {
        const std::int64_t iq = entry.q_begin + i;
        const double visible = load_at(out.visible, entry.batch, h, iq);
        if (visible == 0.0) continue;
        const double max_logit = load_at(out.max_logit, entry.batch, h, iq);
        const double entropy = load_at(out.entropy, entry.batch, h, iq);
        const double max_weight = load_at(out.max_weight, entry.batch, h, iq);
        head.rows += 1;
        // NaN is sticky.
        if (std::isnan(max_logit) || max_logit > head.max_logit) head.max_logit = max_logit;
        if (std::isnan(entropy) || entropy < head.min_entropy) head.min_entropy = entropy;
        head.mean_entropy += entropy;
        head.saturated += std::isnan(max_weight) ? NAN : max_weight > out.saturation_threshold ? 1.0 : 0.0;
        if (visible + sink >= 2.0) {
          head.normalised_entropy += entropy / std::log(visible + sink);
          choosing += 1;
        }
      }
      if (head.rows > 0) {
        head.mean_entropy /= static_cast<double>(head.rows);
        head.saturated /= static_cast<double>(head.rows);
      } else {
        head.min_entropy = 0.0;
      }
      if (choosing > 0) head.normalised_entropy /= static_cast<double>(choosing);
      out.heads[static_cast<std::size_t>(e * problem.q_heads + h)] = head;
    }
  }
}

}  // namespace keel
