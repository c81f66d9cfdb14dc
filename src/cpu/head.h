#pragma once

#include "core/call.h"
#include "cpu/forward.h"

// From the arrays of a call to those of a kernel, which handles one sequence and one head group.
namespace keel::cpu {

// The part of an array for one sequence (from `row` and, where keys are columns, `column` on) and one head group (from
// `head` on).
template <class Pointer>
auto rows_of(const BasicStrided<Pointer>& x, std::int64_t batch, std::int64_t head, std::int64_t row,
             std::int64_t column = 0) {
  constexpr bool is_written = std::is_same_v<Pointer, void*>;
  using Byte = std::conditional_t<is_written, std::byte, const std::byte>;
  using Result = std::conditional_t<is_written, MutableRows, Rows>;
  if (x.data == nullptr) return Result{};
  const std::int64_t offset = batch * x.batch + head * x.head + row * x.row + column * x.column;
  return Result{static_cast<Byte*>(x.data) + offset * size_of(x.dtype), x.head, x.row, x.column};
}

// Whether all queries of a group of heads share a mask of these strides, as with one for padding. A sequence without
// queries has no row of it to inspect.
inline bool is_shared(std::int64_t head_stride, std::int64_t row_stride, std::int64_t n_q, std::int64_t group) {
  return n_q > 0 && (row_stride == 0 || n_q == 1) && (head_stride == 0 || group <= 1);
}

// A mask that all queries share leaves a range of keys: nothing else is computed. If it hides nothing within the
// range, the mask itself is not needed.
inline void take_shared_mask(ForwardHead& head, std::int64_t group) {
  const Rows mask = head.mask;
  if (mask.data == nullptr || !is_shared(mask.head_stride, mask.row_stride, head.n_q, group)) return;
  const auto visible = [&](std::int64_t j) {
    return static_cast<const std::uint8_t*>(mask.data)[j * mask.column_stride] != 0;
  };
  std::int64_t begin = head.k_begin, end = head.k_len;
  while (begin < end && !visible(begin)) ++begin;
  while (begin < end && !visible(end - 1)) --end;
  head.k_begin = begin;
  head.k_end = end;
  while (begin < end && visible(begin)) ++begin;
  if (begin == end) head.mask = {};
}

inline ForwardHead::ForwardHead(const Call& call, const Entry& at, std::int64_t e, std::int64_t h, std::int64_t kv_head)
    : q(rows_of(call.q, at.batch, h, at.q_begin)),
      k(rows_of(call.k, at.batch, kv_head, at.k_begin)),
      v(rows_of(call.v, at.batch, kv_head, at.k_begin)),
      out(rows_of(call.out, at.batch, h, at.q_begin)),
      n_q(at.q_rows),
      q_len(at.q_len),
      k_len(at.k_len),
      k_begin(at.k_start),
      diagonal(at.diagonal),
      entry(e),
      first_head(h),
      first_query(at.q_position),
      first_key(at.k_position),
      relative_pad(call.relative_pad),
      tiles(call.block_tiles),
      tiles_row(at.q_begin),
      tiles_key(at.k_begin),
      weights_before(at.k_begin),
      weights_after(call.sequences.n_k - at.k_begin - at.k_len) {
  const auto mine = [&](const auto& x, std::int64_t column = 0) { return rows_of(x, at.batch, h, at.q_begin, column); };
  if (any_given(call.scale_tensor, call.mask, call.bias, call.alibi, call.sinks, call.relative_bias)) {
    scale = mine(call.scale_tensor);
    mask = mine(call.mask, at.k_begin);
    bias = mine(call.bias, at.k_begin);
    alibi = mine(call.alibi);
    sinks = mine(call.sinks);
    relative = mine(call.relative_bias);
    take_shared_mask(*this, call.group);
  }
  if (any_given(call.lse, call.max_logit, call.entropy, call.max_weight, call.logit_mean, call.logit_var, call.visible,
                call.logit_count, call.key_sums, call.weights)) {
    lse = mine(call.lse);
    max_logit = mine(call.max_logit);
    entropy = mine(call.entropy);
    max_weight = mine(call.max_weight);
    logit_mean = mine(call.logit_mean);
    logit_var = mine(call.logit_var);
    visible = mine(call.visible);
    logit_count = mine(call.logit_count);
    key_sums = rows_of(call.key_sums, at.batch, h, at.k_begin);
    weights = mine(call.weights, at.k_begin);
  }
  if (tiles) tiles.offsets += at.batch * tiles.batch + h * tiles.head;
}

inline ForwardHead head_of(const Call& call, std::int64_t e, std::int64_t kv_head) {
  return {call, call.sequences.entry(e), e, kv_head * call.group, kv_head};
}

inline ForwardHead head_of(const ForwardCall& call, std::int64_t e, std::int64_t kv_head) {
  ForwardHead head = head_of(static_cast<const Call&>(call), e, kv_head);
  if (!call.m && !call.norm) return head;
  const Entry entry = call.sequences.entry(e);
  head.m = rows_of(call.m, entry.batch, head.first_head, entry.q_begin);
  head.norm = rows_of(call.norm, entry.batch, head.first_head, entry.q_begin);
  return head;
}

}  // namespace keel::cpu
