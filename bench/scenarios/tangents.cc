// Derivatives along tangents of q, k and v, against the pass that they differentiate: a jvp has five products where the
// forward pass has two, a double backward pass twelve where the backward pass has five.
#include "bench/scenarios/scenarios.h"

namespace keel::bench {

std::vector<Row> tangent_rows(bool quick) {
  std::vector<Row> rows;
  for (const int threads : {1, 2}) {
    for (const std::int64_t d : {64, 128}) {
      for (const Causal causal : {Causal::none, Causal::top_left}) {
        Case forward{.q_heads = heads(quick), .kv_heads = heads(quick), .d = d, .causal = causal, .threads = threads};
        Case backward = forward, jvp = forward, twice = forward;
        backward.backward = jvp.jvp = twice.twice = true;
        const auto against = [&](const Case& subject, const Case& baseline, const char* name, double goal) {
          rows.push_back({.subject = subject,
                          .metric = Metric::cost,
                          .baseline = baseline,
                          .baseline_name = name,
                          .goal = goal,
                          .about = About::threads});
        };
        against(jvp, forward, "forward", 1.6);
        against(twice, backward, "backward", 2.0);
      }
    }
  }
  const std::int64_t n = quick ? 8192 : 32768;
  Case jvp{.q_heads = 1, .kv_heads = 1, .n_q = n, .n_k = n, .jvp = true, .threads = 1};
  Case twice{.q_heads = 1, .kv_heads = 1, .n_q = n, .n_k = n, .twice = true, .threads = 1};
  for (const Case& c : {jvp, twice}) rows.push_back({.subject = c, .metric = Metric::extra_bytes});
  return rows;
}

}  // namespace keel::bench
