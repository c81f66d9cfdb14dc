// bf16 on the machine's matrix unit: as a share of the unit's peak, and relative to widening it to f32. AMX is so fast
// that the softmax and moving tiles take longer than the products; AVX512_BF16 is bound by its products.
#include "bench/scenarios/scenarios.h"
#include "runtime/machine.h"

namespace keel::bench {

std::vector<Row> unit_rows(bool quick) {
  const std::int64_t h = heads(quick);
  std::vector<Row> rows;
  for (const bool causal : {false, true}) {
    for (const std::int64_t d : {64, 128}) {
      const Case c{.q_heads = h,
                   .kv_heads = h,
                   .d = d,
                   .dtype = DType::bf16,
                   .causal = causal ? Causal::top_left : Causal::none};
      Row row{.subject = c, .about = About::unit};
      if (machine().bf16_unit == MatrixUnit::amx) row.goal = (d == 64 ? 0.24 : 0.33) * (causal ? 0.85 : 1.0);
      rows.push_back(row);
    }
  }
  for (const bool backward : {false, true}) {
    for (const std::int64_t n : {512, 2048}) {
      for (const std::int64_t d : {64, 128}) {
        const Case c{
            .q_heads = h, .kv_heads = h, .n_q = n, .n_k = n, .d = d, .dtype = DType::bf16, .backward = backward};
        Case widened = c;
        widened.target = machine().target_bits.front();
        rows.push_back({.subject = c,
                        .metric = Metric::speedup,
                        .baseline = widened,
                        .baseline_name = "widening",
                        .goal = backward ? 1.4 : 1.5,
                        .about = About::unit});
      }
    }
  }
  return rows;
}

}  // namespace keel::bench
