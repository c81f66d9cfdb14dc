// Bound by what surrounds the kernel: checks, plan, packing of tiles that are mostly empty. The number of threads is
// the planner's choice, which should be the calling thread alone.
#include "bench/scenarios/scenarios.h"

namespace keel::bench {

std::vector<Row> small_rows(bool /*quick*/) {
  return {{.subject = {.q_heads = 1, .kv_heads = 1, .n_q = 16, .n_k = 16, .threads = 0},
           .metric = Metric::call_seconds,
           .goal = 3e-6}};
}

}  // namespace keel::bench
