// The gradients with respect to q, k and v. Five products where the forward pass has two, counted as 2.5 times its
// FLOPs; bound by the FMA ports as well.
#include "bench/scenarios/scenarios.h"

namespace keel::bench {

std::vector<Row> backward_rows(bool quick) {
  const std::int64_t h = heads(quick);
  struct Shape {
    std::int64_t n;
    Causal causal;
    double goal_64, goal_128;
  };
  std::vector<Row> rows;
  for (const Shape& s : {Shape{2048, Causal::none, 0.68, 0.74}, Shape{2048, Causal::top_left, 0.62, 0.68},
                         Shape{512, Causal::top_left, 0.52, 0.56}}) {
    for (const std::int64_t d : {64, 128}) {
      const Case c{.q_heads = h, .kv_heads = h, .n_q = s.n, .n_k = s.n, .d = d, .causal = s.causal, .backward = true};
      rows.push_back({.subject = c, .goal = d == 64 ? s.goal_64 : s.goal_128});
    }
  }
  for (const DType dtype : {DType::bf16, DType::f16}) {
    const Case f32{.q_heads = h, .kv_heads = h, .backward = true};
    Case half = f32;
    half.dtype = dtype;
    rows.push_back({.subject = half,
                    .metric = Metric::rate,
                    .baseline = f32,
                    .baseline_name = "f32",
                    .goal = 0.85,
                    .about = About::dtype});
  }
  for (const Case& one :
       {Case{.q_heads = h, .kv_heads = h, .backward = true},
        Case{.q_heads = h, .kv_heads = h, .causal = Causal::top_left, .backward = true},
        Case{.q_heads = 1, .kv_heads = 1, .n_q = quick ? 4096 : 8192, .n_k = quick ? 4096 : 8192, .backward = true}}) {
    rows.push_back(two_threads(one, 1.8));
  }
  const std::int64_t n = quick ? 8192 : 65536;
  Row memory{.subject = {.q_heads = 1, .kv_heads = 1, .n_q = n, .n_k = n, .backward = true, .threads = 0},
             .metric = Metric::extra_bytes};
  if (!quick) memory.goal = 64.0 * (1 << 20);
  rows.push_back(memory);
  return rows;
}

}  // namespace keel::bench
