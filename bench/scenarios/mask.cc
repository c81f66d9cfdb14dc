// A dense mask is read and applied on top of all the work, and a bias by distance added; a window avoids most of it.
#include "bench/scenarios/scenarios.h"

namespace keel::bench {

std::vector<Row> mask_rows(bool quick) {
  const Case plain{.q_heads = heads(quick), .kv_heads = heads(quick)};
  Case masked = plain;
  masked.mask = true;
  const Case whole{.q_heads = 1, .kv_heads = 1, .n_q = 8192, .n_k = 8192};
  Case window = whole;
  window.window = {.left = 255, .right = 0};
  std::vector<Row> rows = {
      {.subject = masked, .metric = Metric::cost, .baseline = plain, .baseline_name = "no mask", .goal = 0.20},
      {.subject = window, .metric = Metric::speedup, .baseline = whole, .baseline_name = "no mask", .goal = 12.0}};
  for (const bool backward : {false, true}) {
    Case without = plain;
    without.backward = backward;
    Case with = without;
    with.distances = 128;  // T5's
    rows.push_back(
        {.subject = with, .metric = Metric::rate, .baseline = without, .baseline_name = "no bias", .goal = 0.85});
  }
  return rows;
}

}  // namespace keel::bench
