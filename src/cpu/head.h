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

inline ForwardHead head_of(const Call& call, std::int64_t e, std::int64_t kv_head) {
  const Entry entry = call.sequences.entry(e);
  const std::int64_t b = entry.batch, h = kv_head * call.group, q = entry.q_begin, k = entry.k_begin;
  ForwardHead head = {.q = rows_of(call.q, b, h, q),
                      .k = rows_of(call.k, b, kv_head, k),
                      .v = rows_of(call.v, b, kv_head, k),
                      .out = rows_of(call.out, b, h, q),
                      .n_q = entry.q_rows,
                      .q_len = entry.q_len,
                      .k_len = entry.k_len,
                      .k_begin = entry.k_start,
                      .diagonal = entry.diagonal,
                      .entry = e,
                      .first_head = h,
                      .first_query = entry.q_position,
                      .first_key = entry.k_position,
                      .scale = rows_of(call.scale_tensor, b, h, q),
                      .mask = rows_of(call.mask, b, h, q, k),
                      .bias = rows_of(call.bias, b, h, q, k),
                      .alibi = rows_of(call.alibi, b, h, q),
                      .sinks = rows_of(call.sinks, b, h, q),
                      .relative = rows_of(call.relative_bias, b, h, q),
                      .relative_pad = call.relative_pad,
                      .tiles = call.block_tiles,
                      .tiles_row = q,
                      .tiles_key = k,
                      .lse = rows_of(call.lse, b, h, q),
                      .max_logit = rows_of(call.max_logit, b, h, q),
                      .entropy = rows_of(call.entropy, b, h, q),
                      .max_weight = rows_of(call.max_weight, b, h, q),
                      .logit_mean = rows_of(call.logit_mean, b, h, q),
                      .logit_var = rows_of(call.logit_var, b, h, q),
                      .visible = rows_of(call.visible, b, h, q),
                      .logit_count = rows_of(call.logit_count, b, h, q),
                      .m = {},
                      .norm = {},
                      .key_sums = rows_of(call.key_sums, b, h, k),
                      .weights = rows_of(call.weights, b, h, q, k),
                      .weights_before = k,
                      .weights_after = call.sequences.n_k - k - entry.k_len};
  if (head.tiles) head.tiles.offsets += b * head.tiles.batch + h * head.tiles.head;
  take_shared_mask(head, call.group);
  return head;
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
