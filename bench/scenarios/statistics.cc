// Against the same call without them. At d = 64 the softmax, where they are made, has the larger share of the time.
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
  return rows;
}

}  // namespace keel::bench
