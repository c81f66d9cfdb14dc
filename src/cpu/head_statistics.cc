#include "cpu/head_statistics.h"

#include <cmath>

#include "runtime/parallel.h"

namespace keel::cpu {
namespace {

constexpr std::int64_t kItem = 8;  // bytes, enough for any statistic
constexpr std::int64_t kArrays = 4;

std::int64_t rows_of(const Call& call) { return call.sequences.batch * call.q_heads * call.sequences.n_q; }

// A head's rows of a statistic.
template <class U>
const U* rows_from(const MutableStrided& x, const Entry& entry, std::int64_t h) {
  return static_cast<const U*>(x.data) + entry.batch * x.batch + h * x.head;
}

// T: what the statistics are stored in. The logarithm of the number of outcomes would show for short rows: it is
// computed again only where that number changes.
template <class T>
HeadStatistics reduce_head(const Call& call, const Entry& entry, std::int64_t h, double saturation_threshold) {
  const T* const max_logits = rows_from<T>(call.max_logit, entry, h);
  const T* const entropies = rows_from<T>(call.entropy, entry, h);
  const T* const max_weights = rows_from<T>(call.max_weight, entry, h);
  const auto* const visibles = rows_from<std::int64_t>(call.visible, entry, h);
  const std::int64_t sink = call.sinks ? 1 : 0;
  HeadStatistics head{.max_logit = -INFINITY, .min_entropy = INFINITY};
  std::int64_t choosing = 0;  // rows with at least two outcomes
  std::int64_t outcomes = 0;  // of the last of them,
  double most_entropy = 0;    // and the logarithm of that
  for (std::int64_t i = entry.q_begin; i < entry.q_begin + entry.q_len; ++i) {
    const std::int64_t visible = visibles[i * call.visible.row];
    if (visible == 0) continue;
    const double max_logit = max_logits[i * call.max_logit.row], entropy = entropies[i * call.entropy.row],
                 max_weight = max_weights[i * call.max_weight.row];
    head.rows += 1;
    // NaN is sticky: it replaces any number, and no comparison replaces it.
    if (std::isnan(max_logit) || max_logit > head.max_logit) head.max_logit = max_logit;
    if (std::isnan(entropy) || entropy < head.min_entropy) head.min_entropy = entropy;
    head.mean_entropy += entropy;
    head.saturated += std::isnan(max_weight) ? NAN : max_weight > saturation_threshold ? 1.0 : 0.0;
    if (visible + sink < 2) continue;
    if (visible + sink != outcomes) {
      outcomes = visible + sink;
      most_entropy = std::log(static_cast<T>(outcomes));
    }
    head.normalised_entropy += entropy / most_entropy;
    choosing += 1;
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

void HeadRows::reduce(int threads) const {
  const auto reduce = accumulation_dtype(call_.dtype) == DType::f64 ? &reduce_head<double> : &reduce_head<float>;
  parallel_tasks(std::ssize(wanted_.heads), threads, [&](std::int64_t i) {
    wanted_.heads[static_cast<std::size_t>(i)] =
        reduce(call_, call_.sequences.entry(i / call_.q_heads), i % call_.q_heads, wanted_.saturation_threshold);
  });
}

}  // namespace keel::cpu
