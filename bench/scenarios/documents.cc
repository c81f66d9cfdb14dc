// Documents in one long sequence, told by a block mask, against the packed batch of them, which computes the same.
#include "bench/scenarios/scenarios.h"

namespace keel::bench {

std::vector<Row> document_rows(bool quick) {
  std::vector<Row> rows;
  const std::int64_t n = quick ? 8192 : 32768;
  for (const bool ragged : {false, true}) {
    for (const bool backward : {false, true}) {
      Case packed{.q_heads = 1,
                  .kv_heads = 1,
                  .n_q = n,
                  .n_k = n,
                  .documents = n / 512,
                  .ragged = ragged,
                  .backward = backward};
      Case masked = packed;
      masked.as_mask = true;
      rows.push_back(
          {.subject = masked, .metric = Metric::rate, .baseline = packed, .baseline_name = "packed", .goal = 0.80});
    }
  }
  return rows;
}

}  // namespace keel::bench
