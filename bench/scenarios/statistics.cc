// Against the same call without them. At d = 64 the softmax, where they are computed, has a larger share of the time;
// for short rows what is done once per row counts.
// key_sums take a separate pass, with the products of q and k and the exponentials again.
#include "bench/scenarios/scenarios.h"

namespace keel::bench {

std::vector<Row> statistics_rows(bool quick) {
  struct Goals {
    std::int64_t n;
    double usual, everything;
  };
  std::vector<Row> rows;
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const Goals& goals : {Goals{2048, 0.03, 0.04}, Goals{512, 0.04, 0.06}, Goals{128, 0.06, 0.10}}) {
      const std::int64_t h = heads(quick) * 2048 / goals.n;
      const Case plain{.q_heads = h, .kv_heads = h, .n_q = goals.n, .n_k = goals.n, .dtype = dtype};
      for (const auto& [reports, goal] :
           {std::pair{Reports::usual, goals.usual}, {Reports::everything, goals.everything}}) {
        Case c = plain;
        c.reports = reports;
        rows.push_back({.subject = c,
                        .metric = Metric::cost,
                        .baseline = plain,
                        .baseline_name = "plain",
                        .goal = goal,
                        .about = About::dtype});
      }
    }
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
