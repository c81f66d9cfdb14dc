#pragma once

#include <cstdint>

#include "cpu/backward.h"

// The streaming kernel of attention_jvp() and attention_double_backward(). What moves along the tangents has a leading
// t. With the weights p of backward.h, μ = tlse and e = dp − δ,
//
//   ts = tq·k + q·tk (times scale)    μ_i = Σ_j p_ij ts_ij       to_i = Σ_j p_ij (ts_ij v_j + tv_j) − μ_i o_i
//   tδ_i = do_i·to_i                  tds_ij = p_ij ((ts_ij − μ_i) e_ij + do_i·tv_j − tδ_i)
//   tdv_j = Σ_i p_ij (ts_ij − μ_i) do_i
//   tdq_i = scale Σ_j (tds_ij k_j + ds_ij tk_j)        tdk_j = scale Σ_i (tds_ij q_i + ds_ij tq_i)
//
// A task owns a block of rows: its first pass over the keys gives μ and to, which is all of a jvp, and its second the
// rest. Between them it keeps p and ts of its few rows and all keys: 12 products instead of the 15 without. Sums over
// rows, tdk and tdv, are shared by all tasks of the head. A block of keys takes the blocks of rows in order, whichever
// thread computes them, so the bits are the same for any number of threads.
namespace keel::cpu {

// A call as this kernel takes it.
struct TangentCall : TangentArrays {
  TangentCall() = default;
  TangentCall(const TangentProblem& problem, const BackwardProblem& of) : TangentArrays(problem), backward(of) {
    backward.by_rows = true;
  }

  BackwardCall backward;       // of a jvp: without dout and gradients
  std::int64_t task_rows = 0;  // a multiple of row_block, and row_block itself if is_double
  std::int64_t most_keys = 0;  // of any entry

  bool moves_q() const { return tq || tscale; }
  bool sums_keys() const { return backward.dk || backward.dv; }
  // Σ_j ds_ij k_j, which belongs to dq and dscale if the scale moves or has a gradient.
  bool sums_plain() const { return (tscale && backward.dq) || (backward.dscale && tq); }
};

// One sequence and one key-value head. Views not given have data == nullptr.
struct TangentHead {
  BackwardHead backward;
  Rows tq, tk, tv;         // as rows of q, k and v
  Rows tbias;              // columns are keys
  Rows tscale, tsinks;     // one value per row, per head
  MutableRows tout, tlse;  // as rows of out, and one value per row
};

// BlockKernel's lines are the keys, and a block is task_rows rows.
using TangentTask = BlockTask<TangentHead>;
using TangentKernel = BlockKernel<TangentCall, TangentHead>;

// The kernel that accumulates in f32 or f64, for one of Machine::target_bits.
TangentKernel tangent_kernel_f32(std::int64_t target);
TangentKernel tangent_kernel_f64(std::int64_t target);

}  // namespace keel::cpu
