#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "cpu/forward.h"

// The streaming backward kernel. With p_ij = exp(s_ij − lse_i), where lse is the forward call's, and δ_i = do_i·o_i −
// dlse_i,
//
//   dv_j = Σ_i p_ij do_i            ds_ij = p_ij (do_i·v_j − δ_i)
//   dq_i = scale Σ_j ds_ij k_j      dk_j = scale Σ_i ds_ij q_i
//
// Rows are stacked as in forward.h. A task owns a block of keys: it keeps dk and dv of its keys in scratch memory while
// it goes through the rows, and adds to the sums of dq that all tasks of the head share. A block of rows takes the
// blocks of keys in order, whichever thread computes them, so the bits are the same for any number of threads.
namespace keel::cpu {

// A call as this kernel takes it.
struct BackwardCall : keel::BackwardCall {
  BackwardCall() = default;
  explicit BackwardCall(const BackwardProblem& problem) : keel::BackwardCall(problem) {}

  Tiles tiles;           // row_block rows at a time against the key_block keys of a task
  bool by_rows = false;  // tasks are blocks of rows (tangent.h), which need no sums of dq between them

  bool sums_dq() const { return dq || dscale; }  // Σ_j ds_ij k_j, which both are computed from
  bool needs_ds() const { return sums_dq() || dk || dbias || drelative_bias; }
};

// One sequence and one key-value head. Views not given have data == nullptr.
struct BackwardHead {
  ForwardHead forward;          // inputs only
  Rows out, dout;               // as rows of q
  Rows lse, dlse;               // one value per row, in the type that sums are kept in
  MutableRows dq;               // as rows of q
  MutableRows dk, dv;           // as rows of k
  MutableRows dbias;            // written if no two scores share an element of it;
  MutableRows dbias_sums;       // else added to, in the type that sums are kept in
  MutableRows dscale, dsinks;   // one float64 per row, still to be summed
  MutableRows drelative;        // one float64 per distance, from row head_stride·g on: added to
  std::byte* memory = nullptr;  // head_bytes(), kept from prepare() to finish()
};

// One block of a head: of backward(), the keys [block·key_block, (block + 1)·key_block) against all rows. `done` counts
// the blocks of the other side that the task has added to, from the last rows to the first, and `before` is that of the
// preceding block's task; null if one thread does the tasks in order.
template <class Head>
struct BlockTask {
  const Head* head = nullptr;
  std::int64_t block = 0;
  const std::atomic<std::int64_t>* before = nullptr;
  std::atomic<std::int64_t>* done = nullptr;
};
using BackwardTask = BlockTask<BackwardHead>;

// The kernel's entry points for one accumulation type on one SIMD target. A head goes through prepare() for all its
// lines, run() for all its blocks, finish() for all its lines if there are sums; whole() does it all, on one thread.
// Lines are what the blocks share sums of: the rows, if blocks are of keys. `begin` is a multiple of row_block.
template <class Call, class Head>
struct BlockKernel {
  std::int64_t panel_bytes = 0;                                                             // a register tile's row
  std::int64_t (*workspace_bytes)(const Call&) = nullptr;                                   // one thread's scratch
  std::int64_t (*head_bytes)(const Call&, std::int64_t rows, std::int64_t keys) = nullptr;  // aligned to 64 bytes
  void (*prepare)(const Call&, const Head&, std::int64_t begin, std::int64_t end, std::byte* workspace) = nullptr;
  void (*run)(const Call&, const BlockTask<Head>&, std::byte* workspace) = nullptr;
  void (*finish)(const Call&, const Head&, std::int64_t begin, std::int64_t end, std::byte* workspace) = nullptr;
  void (*whole)(const Call&, const Head&, std::int64_t lines, std::int64_t blocks, std::byte* workspace) = nullptr;
};
using BackwardKernel = BlockKernel<BackwardCall, BackwardHead>;

// The kernel that accumulates in f32 or f64, for one of Machine::target_bits.
BackwardKernel backward_kernel_f32(std::int64_t target);
BackwardKernel backward_kernel_f64(std::int64_t target);

}  // namespace keel::cpu
