#pragma once

#include <cstdint>
#include <string>

#include "keel/attention.h"

namespace keel::bench {

// What a call reports besides its output.
enum class Reports {
  nothing,
  usual,          // lse, max_logit, entropy
  everything,     // all statistics of rows and heads
  key_sums,       // only those
  last_key_sums,  // of the last 64 rows
};

// One call of attention(), of one of its derivatives, or of merge(): q (1, q_heads, n_q, d), k and v (1, kv_heads, n_k,
// d), all dense. A merge has parts like q, two of them, and replaces the first.
struct Case {
  std::int64_t q_heads = 4, kv_heads = 4;
  std::int64_t n_q = 2048, n_k = 2048, d = 64;
  DType dtype = DType::f32;
  bool heads_inside = false;  // arrays are (1, n, heads, d), as most caches are, instead of (1, heads, n, d)
  Causal causal = Causal::none;
  Window window = {};
  double dropout = 0.0;
  bool mask = false;           // a boolean mask (1, 1, n_q, n_k) with a scattered eighth of the keys hidden
  std::int64_t distances = 0;  // a bias by distance, from a table up to this one; with its gradient. 0: none
  std::int64_t documents = 0;  // so many side by side, each seeing its own up to the diagonal; 0: no documents
  bool ragged = false;         // of different lengths
  bool as_mask = false;        // by a block mask, else as a packed batch
  Reports reports = Reports::nothing;
  bool backward = false;    // attention_backward(), with gradients of q, k and v
  bool jvp = false;         // attention_jvp(), along tangents of q, k and v
  bool twice = false;       // attention_double_backward(), likewise, with gradients of dout, q, k and v
  bool merge = false;       // merge()
  int threads = 1;          // 0 leaves the number to the planner
  std::int64_t target = 0;  // Highway's SIMD target; 0 is the best available
};

// "4×2048×64 causal", "32/8×1:32768×128": heads, queries (:keys if they differ), head size, and what else is set.
std::string text_of(const Case& c);

}  // namespace keel::bench
