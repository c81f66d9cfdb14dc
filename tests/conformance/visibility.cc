#include "conformance/visibility.h"

#include "reference/row.h"

namespace keel::conformance {

Visibility visibility_of(const Problem& p) {
  Visibility seen{std::vector<char>(static_cast<std::size_t>(p.batch * p.q_heads * p.n_q), 0),
                  std::vector<char>(static_cast<std::size_t>(p.batch * p.kv_heads * p.n_k), 0)};
  for (std::int64_t e = 0; e < p.entries(); ++e) {
    const Entry entry = p.entry(e);
    for (std::int64_t h = 0; h < p.q_heads; ++h) {
      for (std::int64_t i = 0; i < entry.q_rows; ++i) {
        const std::int64_t iq = entry.q_begin + i;
        const KeyRange range = p.sequences.key_range(entry, i);
        for (std::int64_t j = range.begin; j < range.end; ++j) {
          const std::int64_t jk = entry.k_begin + j;
          if (!reference::allowed(p, entry, h, i, j)) continue;
          seen.rows[static_cast<std::size_t>((entry.batch * p.q_heads + h) * p.n_q + iq)] = 1;
          seen.keys[static_cast<std::size_t>((entry.batch * p.kv_heads + p.kv_head(h)) * p.n_k + jk)] = 1;
        }
      }
    }
  }
  return seen;
}

}  // namespace keel::conformance
