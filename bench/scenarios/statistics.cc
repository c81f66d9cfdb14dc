// Against the same call without them. At d = 64 the softmax, where they are computed, has a larger share of the time.
// key_sums take a separate pass, with the products of q and k and the exponentials again.
#include "bench/scenarios/scenarios.h"

namespace keel::bench {

std::vector<Row> statistics_rows(bool quick) {
  const Case plain{.q_heads = heads(quick), .kv_heads = heads(quick)};
  std::vector<Row> rows;
  for (const auto& [reports, goal] : {std::pair{Reports::usual, 0.05}, {Reports::everything, 0.10}}) {
    Case c = plain;
    c.reports = reports;
    rows.push_back({.subject = c, .metric = Metric::cost, .baseline = plain, .baseline_name = "plain", .goal = goal});
  }
  const Case long_one{.q_heads = heads(quick) / 2, .kv_heads = heads(quick) / 2, .n_q = 4096, .n_k = 4096};
  for (const auto& [reports, goal] : {std::pair{Reports::key_sums, 0.70}, {Reports::last_key_sums, 0.10}}) {
    for (const int threads : {1, 2}) {
      Case baseline = long_one;
      baseline.threads = threads;
      Case c = baseline;
      c.reports = reports;
      rows.push_back(
          {.subject = c, .metric = Metric::cost, .baseline = baseline, .baseline_name = "plain", .goal = goal});
    }
  }
  return rows;
}

}  // namespace keel::bench
