// Random numbers, a few multiplications per weight, on top of the plain call.
#include "bench/scenarios/scenarios.h"

namespace keel::bench {

std::vector<Row> dropout_rows(bool quick) {
  std::vector<Row> rows;
  for (const bool backward : {false, true}) {
    const Case plain{.q_heads = heads(quick), .kv_heads = heads(quick), .backward = backward};
    Case dropped = plain;
    dropped.dropout = 0.1;
    rows.push_back({.subject = dropped, .metric = Metric::cost, .baseline = plain, .baseline_name = "no dropout"});
  }
  return rows;
}

}  // namespace keel::bench
