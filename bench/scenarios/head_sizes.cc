// The softmax weighs more the smaller a head is; 80 is not a multiple of an AVX-512 panel; 256 demands most of the
// cache.
#include "bench/scenarios/scenarios.h"

namespace keel::bench {

std::vector<Row> head_size_rows(bool quick) {
  std::vector<Row> rows;
  for (const auto& [d, goal] : {std::pair{32, 0.65}, {80, 0.65}, {256, 0.80}}) {
    rows.push_back({.subject = {.q_heads = heads(quick), .kv_heads = heads(quick), .d = d}, .goal = goal});
  }
  return rows;
}

}  // namespace keel::bench
