// The same source for another SIMD target, judged by what that target can do.
#include <hwy/targets.h>

#include "bench/scenarios/scenarios.h"

namespace keel::bench {

std::vector<Row> target_rows(bool quick) {
  return {{.subject = {.q_heads = heads(quick), .kv_heads = heads(quick), .d = 128, .target = HWY_AVX2},
           .goal = 0.78,
           .about = About::target}};
}

}  // namespace keel::bench
