// One token of a generation: 32 query heads on 8 over a cache of 32768, in both usual layouts. Bound by reading k and v
// once.
#include "bench/scenarios/scenarios.h"

namespace keel::bench {

std::vector<Row> decode_rows(bool /*quick*/) {
  std::vector<Row> rows;
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const bool heads_inside : {false, true}) {
      rows.push_back({.subject = {.q_heads = 32,
                                  .kv_heads = 8,
                                  .n_q = 1,
                                  .n_k = 32768,
                                  .d = 128,
                                  .dtype = dtype,
                                  .heads_inside = heads_inside,
                                  .threads = 2},
                      .metric = Metric::bandwidth_share,
                      .goal = dtype == DType::f32 ? 0.90 : 0.85,
                      .about = About::dtype});
    }
  }
  return rows;
}

}  // namespace keel::bench
