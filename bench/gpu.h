#pragma once

#include <optional>
#include <string>
#include <vector>

#include "keel/attention.h"

// What `keel bench gpu` measures: calls on a GPU, next to what the GPU can do at most, in every repeat.
namespace keel::bench {

enum class Term { none, alibi, mask, bias, softcap, dropout };
enum class RowReports { nothing, lse, entropy, everything };

// One call: q (batch, q_heads, n_q, d), k and v (batch, kv_heads, n_k, d), all dense.
struct GpuCase {
  std::int64_t batch = 4, q_heads = 16, kv_heads = 16, n_q = 4096, n_k = 4096, d = 128;
  DType dtype = DType::bf16;
  Causal causal = Causal::none;
  std::int64_t window = 0;  // keys before the diagonal; 0: unbounded
  Term term = Term::none;   // one more for each score; the bias has q's dtype and a matrix per head
  RowReports reports = RowReports::nothing;
  bool backward = false;  // attention_backward(), with gradients of q, k and v
};
std::string text_of(const GpuCase& c);

struct GpuRow {
  std::string group;  // under which heading it is printed
  GpuCase subject;
  std::optional<GpuCase> baseline{};  // measured in turn, where the speed relative to it counts
};
// All rows: 16,384 tokens of 2048 numbers in the grid, the plain calls of which are the baselines of the others.
std::vector<GpuRow> gpu_rows(DType dtype, bool backward, bool quick);

struct GpuTimes {
  GpuRow row;
  std::string kernel;                     // as planned
  std::string skipped;                    // why nothing was measured; empty otherwise
  double flops = 0, bytes = 0;            // multiply-adds of visible scores, twice; bytes of k and v
  std::vector<double> seconds, baseline;  // per call, one per repeat
  std::vector<double> peak, copy;         // FLOP/s of matrix products alone (0: not known), bytes/s of a copy, likewise
};
GpuTimes measure_gpu(int device, const GpuRow& row, int repeats);

}  // namespace keel::bench
