// One part is merged into another in place, as in each step of a ring of machines. Bound by memory: two elements are
// read for each one written, and nothing is used twice.
#include "bench/scenarios/scenarios.h"

namespace keel::bench {

std::vector<Row> merge_rows(bool quick) {
  std::vector<Row> rows;
  for (const std::int64_t d : {64, 128}) {
    rows.push_back(
        {.subject = {.q_heads = quick ? 16 : 32, .kv_heads = 1, .n_q = 8192, .d = d, .merge = true, .threads = 2},
         .metric = Metric::update_share,
         .goal = 0.80});
  }
  return rows;
}

}  // namespace keel::bench
