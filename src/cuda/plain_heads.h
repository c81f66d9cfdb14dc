#pragma once

#include <cmath>

#include "core/call.h"
#include "cuda/element.h"
#include "cuda/lanes.h"
#include "keel/attention.h"

// The statistics of each head, made from those of its rows.
namespace keel::cuda {

// The head statistics that a caller asked for, entries × H_q of them where the kernels run; none where data is null.
struct HeadOutputs {
  HeadStatistics* data = nullptr;
  double saturation_threshold = 0;
};

// Items are heads of entries. `call` has the rows' visible, max_logit, entropy and max_weight.
struct Heads {
  Call call;
  HeadOutputs wanted;

  template <class Lanes>
  KEEL_HD void operator()(std::int64_t item, const Lanes& lanes) const {
    const Entry entry = call.sequences.entry(item / call.q_heads);
    const std::int64_t h = item % call.q_heads;
    const double sink = call.sinks ? 1.0 : 0.0;
    std::int64_t rows = 0, choosing = 0;  // rows that see a key, and of those the ones with at least two outcomes
    double max_logit = -INFINITY, low = -INFINITY, sum = 0, normalised = 0, saturated = 0;  // low: of −entropy
    for (std::int64_t i = entry.q_begin + lanes.lane(); i < entry.q_begin + entry.q_len; i += Lanes::kCount) {
      const auto value = [&](const MutableStrided& x) { return load_row_value<double>(x, entry.batch, h, i); };
      const double visible = value(call.visible);
      if (visible == 0.0) continue;
      const double entropy = value(call.entropy), max_weight = value(call.max_weight);
      rows += 1;
      max_logit = larger_of(max_logit, value(call.max_logit));
      low = larger_of(low, -entropy);
      sum += entropy;
      saturated += std::isnan(max_weight) ? NAN : max_weight > wanted.saturation_threshold ? 1.0 : 0.0;
      if (visible + sink < 2.0) continue;
      normalised += entropy / std::log(visible + sink);
      choosing += 1;
    }
    rows = lanes.sum(rows);
    choosing = lanes.sum(choosing);
    HeadStatistics head{
        .max_logit = lanes.max(max_logit), .mean_entropy = lanes.sum(sum), .min_entropy = lanes.max(low)};
    head.normalised_entropy = lanes.sum(normalised);
    head.saturated = lanes.sum(saturated);
    head.rows = rows;
    head.min_entropy = rows > 0 ? -head.min_entropy : 0.0;
    if (rows > 0) {
      head.mean_entropy /= static_cast<double>(rows);
      head.saturated /= static_cast<double>(rows);
    }
    if (choosing > 0) head.normalised_entropy /= static_cast<double>(choosing);
    if (lanes.lane() == 0) wanted.data[item] = head;
  }
};

}  // namespace keel::cuda
