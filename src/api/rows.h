#pragma once

#include "core/problem.h"
#include "cpu/forward.h"

// From the views of a problem to those of a kernel, which sees one sequence and one head group.
namespace keel {

template <class View>
auto* address(const View& x, std::int64_t offset) {
  using Byte = std::conditional_t<std::is_same_v<decltype(x.data), void*>, std::byte, const std::byte>;
  return x.data == nullptr ? nullptr : static_cast<Byte*>(x.data) + offset * size_of(x.dtype);
}

// The rows of a view that belong to one sequence (from `row` on) and one head group (from `head` on).
inline cpu::Rows rows_of(const TensorView& x, std::int64_t batch, std::int64_t head, std::int64_t row,
                         std::int64_t column = 0) {
  const auto& s = x.strides;
  return {address(x, batch * s[0] + head * s[1] + row * s[2] + column * s[3]), s[1], s[2], s[3]};
}
inline cpu::MutableRows rows_of(const MutableTensorView& x, std::int64_t batch, std::int64_t head, std::int64_t row,
                                std::int64_t column = 0) {
  const auto& s = x.strides;
  return {address(x, batch * s[0] + head * s[1] + row * s[2] + column * s[3]), s[1], s[2], s[3]};
}
inline cpu::Rows rows_of(const RowView& x, std::int64_t batch, std::int64_t head, std::int64_t row) {
  const auto& s = x.strides;
  return {address(x, batch * s[0] + head * s[1] + row * s[2]), s[1], s[2], 0};
}
inline cpu::MutableRows rows_of(const MutableRowView& x, std::int64_t batch, std::int64_t head, std::int64_t row) {
  const auto& s = x.strides;
  return {address(x, batch * s[0] + head * s[1] + row * s[2]), s[1], s[2], 0};
}
inline cpu::Rows rows_of(const HeadView& x, std::int64_t head) {
  return {address(x, head * x.strides[0]), x.strides[0], 0, 0};
}

// Whether all queries of a group of heads share a mask of these strides, as they do one for padding.
inline bool is_shared(std::int64_t head_stride, std::int64_t row_stride, std::int64_t n_q, std::int64_t group) {
  return (row_stride == 0 || n_q <= 1) && (head_stride == 0 || group <= 1);
}

// A mask that all queries share leaves a range of keys: nothing else is computed. Where it hides nothing within the
// range, the mask itself is not needed. An entry of a packed batch may have keys and no query, hence no row of the
// mask.
inline void take_shared_mask(cpu::ForwardHead& head, std::int64_t group) {
  const cpu::Rows mask = head.mask;
  if (mask.data == nullptr || head.n_q == 0 || !is_shared(mask.head_stride, mask.row_stride, head.n_q, group)) return;
  const auto visible = [&](std::int64_t j) {
    return static_cast<const std::uint8_t*>(mask.data)[j * mask.column_stride] != 0;
  };
  std::int64_t begin = 0, end = head.k_len;
  while (begin < end && !visible(begin)) ++begin;
  while (begin < end && !visible(end - 1)) --end;
  head.k_begin = begin;
  head.k_end = end;
  while (begin < end && visible(begin)) ++begin;
  if (begin == end) head.mask = {};
}

inline cpu::ForwardHead head_of(const Problem& p, std::int64_t e, std::int64_t kv_head) {
  const Entry entry = p.entry(e);
  const std::int64_t group = p.q_heads / p.kv_heads;
  const std::int64_t b = entry.batch, h = kv_head * group, q = entry.q_begin, k = entry.k_begin;
  const Options& o = p.options;
  const Outputs& out = p.outputs;
  cpu::ForwardHead head = {.q = rows_of(p.q, b, h, q),
                           .k = rows_of(p.k, b, kv_head, k),
                           .v = rows_of(p.v, b, kv_head, k),
                           .out = rows_of(p.out, b, h, q),
                           .n_q = entry.q_rows,
                           .q_len = entry.q_len,
                           .k_len = entry.k_len,
                           .diagonal = p.diagonal(entry),
                           .entry = e,
                           .first_head = h,
                           .scale = rows_of(o.scale_tensor, b, h, q),
                           .mask = rows_of(o.mask, b, h, q, k),
                           .bias = rows_of(o.bias, b, h, q, k),
                           .alibi = rows_of(o.alibi, h),
                           .sinks = rows_of(o.sinks, h),
                           .lse = rows_of(out.lse, b, h, q),
                           .max_logit = rows_of(out.max_logit, b, h, q),
                           .entropy = rows_of(out.entropy, b, h, q),
                           .max_weight = rows_of(out.max_weight, b, h, q),
                           .logit_mean = rows_of(out.logit_mean, b, h, q),
                           .logit_var = rows_of(out.logit_var, b, h, q),
                           .visible = rows_of(out.visible, b, h, q),
                           .weights = rows_of(out.weights, b, h, q, k),
                           .weights_before = k,
                           .weights_after = p.n_k - k - entry.k_len};
  take_shared_mask(head, group);
  return head;
}

}  // namespace keel
