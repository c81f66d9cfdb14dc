#include "bench/flops.h"

#include <cmath>

#include "core/element.h"

namespace keel::bench {

std::int64_t visible_scores(const Problem& p) {
  const TensorView &mask = p.options.mask, &bias = p.options.bias;
  std::int64_t total = 0;
  for (std::int64_t e = 0; e < p.entries(); ++e) {
    const Entry entry = p.entry(e);
    for (std::int64_t i = 0; i < entry.q_rows; ++i) {
      const KeyRange keys = p.sequences.key_range(entry, i);
      if (!mask.given() && !bias.given()) {
        total += std::max<std::int64_t>(keys.end - keys.begin, 0) * p.q_heads;
        continue;
      }
      for (std::int64_t h = 0; h < p.q_heads; ++h) {
        for (std::int64_t j = keys.begin; j < keys.end; ++j) {
          const std::int64_t row = entry.q_begin + i, column = entry.k_begin + j;
          const bool hidden = (mask.given() && load_at(mask, entry.batch, h, row, column) == 0.0) ||
                              (bias.given() && load_at(bias, entry.batch, h, row, column) == -INFINITY);
          total += hidden ? 0 : 1;
        }
      }
    }
  }
  return total;
}

double forward_flops(const Problem& p) {
  return 2.0 * static_cast<double>(p.d_k + p.d_v) * static_cast<double>(visible_scores(p));
}

double key_value_bytes(const Problem& p) {
  return static_cast<double>(p.batch * p.kv_heads * p.n_k * (p.d_k + p.d_v) * size_of(p.dtype));
}

}  // namespace keel::bench
