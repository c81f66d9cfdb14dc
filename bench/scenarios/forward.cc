// The everyday shapes. Bound by the FMA ports; short and causal calls also by packing and by rows and keys that fill
// their tiles in part.
#include "bench/scenarios/scenarios.h"

namespace keel::bench {

std::vector<Row> forward_rows(bool quick) {
  struct Shape {
    std::int64_t n;
    Causal causal;
    double goal_64, goal_128;
  };
  std::vector<Row> rows;
  for (const Shape& s : {Shape{2048, Causal::none, 0.80, 0.84}, Shape{2048, Causal::top_left, 0.72, 0.77},
                         Shape{512, Causal::top_left, 0.62, 0.66}, Shape{128, Causal::none, 0.60, 0.64}}) {
    for (const std::int64_t d : {64, 128}) {
      const Case c{
          .q_heads = heads(quick), .kv_heads = heads(quick), .n_q = s.n, .n_k = s.n, .d = d, .causal = s.causal};
      rows.push_back({.subject = c, .goal = d == 64 ? s.goal_64 : s.goal_128});
    }
  }
  return rows;
}

}  // namespace keel::bench
