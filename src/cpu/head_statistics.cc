#include "cpu/head_statistics.h"

#include <cmath>

#include "core/element.h"

namespace keel::cpu {
namespace {

constexpr std::int64_t kItem = 8;  // bytes, enough for any statistic
constexpr std::int64_t kArrays = 4;

std::int64_t rows_of(const Call& call) { return call.sequences.batch * call.q_heads * call.sequences.n_q; }

HeadStatistics reduce_head(const Call& call, const Entry& entry, std::int64_t h, double saturation_threshold) {
  const double sink = call.sinks ? 1.0 : 0.0;
  HeadStatistics head{.max_logit = -INFINITY, .min_entropy = INFINITY};
  std::int64_t choosing = 0;  // rows with at least two outcomes
  for (std::int64_t i = entry.q_begin; i < entry.q_begin + entry.q_len; ++i) {
    const auto value = [&](const MutableStrided& x) {
      return load(x.data, x.dtype, entry.batch * x.batch + h * x.head + i * x.row);
    };
    const double visible = value(call.visible);
    if (visible == 0.0) continue;
    const double max_logit = value(call.max_logit), entropy = value(call.entropy), max_weight = value(call.max_weight);
    head.rows += 1;
    // NaN is sticky: it replaces any number, and no comparison replaces it.
    if (std::isnan(max_logit) || max_logit > head.max_logit) head.max_logit = max_logit;
    if (std::isnan(entropy) || entropy < head.min_entropy) head.min_entropy = entropy;
    head.mean_entropy += entropy;
    head.saturated += std::isnan(max_weight) ? NAN : max_weight > saturation_threshold ? 1.0 : 0.0;
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
  return head;
}

}  // namespace

std::int64_t HeadRows::bytes(const Call& call, const HeadOutputs& wanted) {
  return wanted.heads.empty() ? 0 : kArrays * kItem * rows_of(call);
}

HeadRows::HeadRows(Call& call, const HeadOutputs& wanted)
    : call_(call), wanted_(wanted), memory_(static_cast<std::size_t>(bytes(call, wanted))) {
  if (wanted.heads.empty()) return;
  const std::int64_t n_q = call.sequences.n_q;
  std::byte* free = memory_.data();
  for (MutableStrided* const x : {&call.max_logit, &call.entropy, &call.max_weight, &call.visible}) {
    if (*x) continue;
    const DType dtype = x == &call.visible ? DType::i64 : accumulation_dtype(call.dtype);
    *x = {free, dtype, call.q_heads * n_q, n_q, 1, 0};
    free += kItem * rows_of(call);
  }
}

void HeadRows::reduce() const {
  if (wanted_.heads.empty()) return;
  for (std::int64_t e = 0; e < call_.sequences.entries(); ++e) {
    const Entry entry = call_.sequences.entry(e);
    for (std::int64_t h = 0; h < call_.q_heads; ++h) {
      wanted_.heads[static_cast<std::size_t>(e * call_.q_heads + h)] =
          reduce_head(call_, entry, h, wanted_.saturation_threshold);
    }
  }
}

}  // namespace keel::cpu
