#pragma once

#include <cstddef>
#include <cstdint>

#include "keel/attention.h"

// The join of results over different keys (merge() in keel/attention.h), for rows counted through (B, H, N_q).
namespace keel::cpu {

// Views that are not given have data == nullptr.
struct MergeCall {
  const Partial* parts = nullptr;
  std::int64_t count = 0;
  MutableTensorView out;
  Outputs outputs;  // lse and row statistics
};

// The kernel for one accumulation type on one SIMD target.
struct MergeKernel {
  std::int64_t (*workspace_bytes)(const MergeCall&) = nullptr;  // one thread's scratch
  // Rows [begin, end); workspace aligned to 64 bytes. What is written for a row depends only on that row.
  void (*run)(const MergeCall&, std::int64_t begin, std::int64_t end, std::byte* workspace) = nullptr;
};

// The kernel that accumulates in f32 or f64, for one of Highway's targets.
MergeKernel merge_kernel(DType accumulation, std::int64_t target);

// How the rows are shared among threads.
struct MergeTasks {
  std::int64_t target = 0;
  std::int64_t row_block = 0;
  int threads = 1;
};

// All `rows` rows of a call.
void run_merge(const MergeCall& call, std::int64_t rows, const MergeTasks& tasks);

}  // namespace keel::cpu
