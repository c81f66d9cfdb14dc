// Even tasks, uneven ones, and a single head that must be cut along its rows.
#include "bench/scenarios/scenarios.h"

namespace keel::bench {

std::vector<Row> thread_rows(bool quick) {
  const std::int64_t h = heads(quick);
  std::vector<Row> rows;
  for (const Case& one :
       {Case{.q_heads = h, .kv_heads = h}, Case{.q_heads = h, .kv_heads = h, .causal = Causal::top_left},
        Case{.q_heads = 1, .kv_heads = 1, .n_q = 8192, .n_k = 8192}}) {
    Case two = one;
    two.threads = 2;
    rows.push_back({.subject = two,
                    .metric = Metric::speedup,
                    .baseline = one,
                    .baseline_name = "one thread",
                    .goal = 1.85,
                    .about = About::threads});
  }
  return rows;
}

}  // namespace keel::bench
