// f64 has its own peak. Where the 16-bit types are computed in f32, converting them is all they may cost.
#include "bench/scenarios/scenarios.h"

namespace keel::bench {

std::vector<Row> dtype_rows(bool quick) {
  std::vector<Row> rows;
  for (const DType dtype : {DType::f64, DType::bf16, DType::f16}) {
    for (const std::int64_t d : {64, 128}) {
      const Case f32{.q_heads = heads(quick), .kv_heads = heads(quick), .d = d};
      Case c = f32;
      c.dtype = dtype;
      if (dtype == DType::f64) {
        c.q_heads = c.kv_heads = heads(quick) / 2;
        rows.push_back({.subject = c, .goal = 0.70, .about = About::dtype});
      } else {
        rows.push_back({.subject = c,
                        .metric = Metric::rate,
                        .baseline = f32,
                        .baseline_name = "f32",
                        .goal = 0.90,
                        .about = About::dtype});
      }
    }
  }
  return rows;
}

}  // namespace keel::bench
