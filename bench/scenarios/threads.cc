// Even tasks, uneven ones, and a single head that must be split along its rows.
#include "bench/scenarios/scenarios.h"

namespace keel::bench {

Row two_threads(const Case& one, double goal) {
  Case two = one;
  two.threads = 2;
  return {.subject = two,
          .metric = Metric::speedup,
          .baseline = one,
          .baseline_name = "one thread",
          .goal = goal,
          .about = About::threads};
}

std::vector<Row> thread_rows(bool quick) {
  const std::int64_t h = heads(quick);
  std::vector<Row> rows;
  for (const Case& one :
       {Case{.q_heads = h, .kv_heads = h}, Case{.q_heads = h, .kv_heads = h, .causal = Causal::top_left},
        Case{.q_heads = 1, .kv_heads = 1, .n_q = 8192, .n_k = 8192}}) {
    rows.push_back(two_threads(one, 1.85));
  }
  return rows;
}

}  // namespace keel::bench
