// A sequence whose weights would fill 64 GiB. One call, on all available threads, since each has scratch memory.
#include "bench/scenarios/scenarios.h"

namespace keel::bench {

std::vector<Row> memory_rows(bool quick) {
  const std::int64_t n = quick ? 32768 : 131072;
  Row row{.subject = {.q_heads = 1, .kv_heads = 1, .n_q = n, .n_k = n, .threads = 0}, .metric = Metric::extra_bytes};
  if (!quick) row.goal = 64.0 * (1 << 20);
  return {row};
}

}  // namespace keel::bench
