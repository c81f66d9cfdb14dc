#pragma once

#include <cstdint>
#include <type_traits>

#include "core/block_tiles.h"
#include "core/sequences.h"
#include "keel/dtype.h"

// A call as kernels take it: pointers, sizes and strides, without ownership, and trivially copyable, so that a GPU can
// take it by value. It is made from a problem, which has validated it.
namespace keel {

struct Problem;
struct BackwardProblem;
struct TangentProblem;

// An array of any rank up to four: element (b, h, i, c) is at data[b·batch + h·head + i·row + c·column]. Strides count
// elements. data is null if the array was not given.
template <class Pointer>
struct BasicStrided {
  Pointer data = nullptr;
  DType dtype = DType::f32;
  std::int64_t batch = 0, head = 0, row = 0, column = 0;

  constexpr explicit operator bool() const { return data != nullptr; }
};
using Strided = BasicStrided<const void*>;
using MutableStrided = BasicStrided<void*>;

// Whether any of these has data. One test for many arrays: testing each would take a noticeable share of a small call.
template <class... Arrays>
bool any_given(const Arrays&... arrays) {
  return (reinterpret_cast<std::uintptr_t>(arrays.data) | ...) != 0;
}

// A view of rank 4 has all four dimensions, one of rank 3 a value per row, one of rank 2 a row per head, one of rank 1
// a value per head.
template <std::size_t Rank, class Pointer>
constexpr BasicStrided<Pointer> strided(const BasicView<Rank, Pointer>& view) {
  const auto& s = view.strides;
  if constexpr (Rank == 4) return {view.data, view.dtype, s[0], s[1], s[2], s[3]};
  if constexpr (Rank == 3) return {view.data, view.dtype, s[0], s[1], s[2], 0};
  if constexpr (Rank == 2) return {view.data, view.dtype, 0, s[0], 0, s[1]};
  if constexpr (Rank == 1) return {view.data, view.dtype, 0, s[0], 0, 0};
}

struct Call {
  Call() = default;
  explicit Call(const Problem& problem);

  DType dtype = DType::f32;  // of q, k and v
  std::int64_t q_heads = 0, kv_heads = 0, d_k = 0, d_v = 0;
  std::int64_t group = 1;  // query heads per key-value head
  Sequences sequences;

  double scale = 1.0;    // unless there is a scale_tensor
  double softcap = 0.0;  // 0: none
  double dropout = 0.0;
  std::uint64_t seed = 0;

  Strided q, k, v;
  Strided scale_tensor;                       // one value per row
  Strided mask, bias;                         // columns are keys
  Strided alibi;                              // one value per batch entry and head
  Strided sinks;                              // one value per head
  Strided relative_bias;                      // columns are distances, from −radius to radius
  std::int64_t radius = 0, relative_pad = 0;  // relative_pad: what a backend has put before and after a row of it
  BlockTiles block_tiles{};

  MutableStrided out{};
  // One value per row.
  MutableStrided lse{}, max_logit{}, entropy{}, max_weight{}, logit_mean{}, logit_var{}, visible{}, logit_count{};
  MutableStrided weights{};       // columns are keys
  MutableStrided key_sums{};      // one value per key: rows are keys
  std::int64_t key_sum_rows = 0;  // over the last so many rows of each entry; 0: over all
  MutableStrided scores{};        // columns are keys
  ScoreStage score_stage = ScoreStage::raw;
};

// Leaves out what happens to scores after call.score_stage.
constexpr void keep_score_stage(Call& call) {
  if (call.score_stage == ScoreStage::masked) return;
  call.mask = call.bias = call.alibi = call.relative_bias = {};
  call.block_tiles = {};
  call.sequences.window_left = call.sequences.window_right = Window::kUnbounded;
  if (call.score_stage == ScoreStage::raw) call.softcap = 0.0;
}

struct BackwardCall {
  BackwardCall() = default;
  explicit BackwardCall(const BackwardProblem& problem);

  Call forward;  // its inputs only
  Strided out, dout;
  Strided lse, dlse;
  MutableStrided dq, dk, dv, dbias, dscale, dsinks, drelative_bias;
  bool accumulate = false;
};

// What attention_jvp() and attention_double_backward() add to a backward call.
struct TangentArrays {
  TangentArrays() = default;
  explicit TangentArrays(const TangentProblem& problem);

  Strided tq, tk, tv, tbias, tscale, tsinks;
  MutableStrided tout, tlse;
  bool is_double = false;  // else a jvp
};

static_assert(std::is_trivially_copyable_v<Call> && std::is_trivially_copyable_v<BackwardCall> &&
              std::is_trivially_copyable_v<TangentArrays>);

}  // namespace keel
