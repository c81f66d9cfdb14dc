#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

#include "keel/view.h"

namespace keel {

// Where the elements of a view are: `rank` dimensions of `shape` elements, `strides` elements apart, from address
// `base`. Sizes and strides are the view's own, which must outlive it.
struct Layout {
  std::uintptr_t base = 0;
  std::int64_t item = 1;  // bytes per element
  int rank = 0;
  const std::int64_t* shape = nullptr;
  const std::int64_t* strides = nullptr;
};

template <std::size_t Rank, class Pointer>
Layout layout_of(const BasicView<Rank, Pointer>& view) {
  return {reinterpret_cast<std::uintptr_t>(view.data), size_of(view.dtype), static_cast<int>(Rank), view.shape.data(),
          view.strides.data()};
}

// Whether no two elements overlap. Exact for layouts whose dimensions nest (each stride steps over all that
// the smaller ones reach), which every slice, transpose or reshape of an array is; others count as overlapping. If the
// view `reduces`, what is written along a stride of 0 is a sum, and one element.
[[nodiscard]] bool has_distinct_elements(const Layout& layout, bool reduces = false);

// The bytes that a view spans, from first to last: [low, low + size).
struct Span {
  std::uintptr_t low = 0, size = 0;
};

struct Extent {
  bool fits = false;  // all elements lie within 2^60 bytes, so that no offset can overflow. The same is required of
                      // the other dimensions of a view without elements: loops over those still use their strides.
  std::int64_t count = 0;  // of elements; INT64_MAX if it overflows
  Span span;               // nothing for a view without elements, everything for one that does not fit
};

constexpr std::int64_t magnitude(std::int64_t x) { return x < 0 ? -x : x; }

// Inline, so that the rank is a constant: this is a noticeable share of a small call.
[[nodiscard, gnu::always_inline]] inline Extent extent_of(const Layout& layout) {
  constexpr std::int64_t most = std::int64_t{1} << 60;  // beyond any address space; sums of two such still fit
  std::int64_t below = 0, above = 0, count = 1, total = 0;
  bool fits = true, is_empty = false, counts = true;
  for (int i = 0; i < layout.rank; ++i) {
    const std::int64_t size = layout.shape[i], stride = layout.strides[i];
    is_empty |= size == 0;
    counts &= !__builtin_mul_overflow(count, size, &count);
    // Bytes that the view reaches below and above its base, to the highest element's first byte.
    std::int64_t reach = 0;
    fits &= stride != std::numeric_limits<std::int64_t>::min() &&  // whose magnitude would overflow
            !__builtin_mul_overflow(stride, std::max<std::int64_t>(size, 1) - 1, &reach) &&
            !__builtin_mul_overflow(reach, layout.item, &reach) &&
            !__builtin_add_overflow(below, std::min<std::int64_t>(reach, 0), &below) &&
            !__builtin_add_overflow(above, std::max<std::int64_t>(reach, 0), &above);
  }
  fits = fits && !__builtin_sub_overflow(above, below, &total) && total < most;
  if (is_empty) return {fits, 0, {layout.base, 0}};
  if (!counts) count = std::numeric_limits<std::int64_t>::max();
  if (!fits) return {false, count, {0, std::numeric_limits<std::uintptr_t>::max()}};
  return {true,
          count,
          {layout.base + static_cast<std::uintptr_t>(below), static_cast<std::uintptr_t>(total + layout.item)}};
}

inline bool are_apart(const Span& a, const Span& b) {
  return a.low <= b.low ? b.low - a.low >= a.size : a.low - b.low >= b.size;
}

// Whether two views share a byte. Exact up to a limit on the work, beyond which the answer is yes: interleaved views
// such as the q, k and v of one packed array are told apart.
[[nodiscard]] bool share_memory(const Layout& a, const Layout& b);

// Strides that are never followed may be any number, and were not checked: those of a view that is not given, and along
// dimensions of size 0 or 1. They become 0, or 1 along the last dimension, so that no offset computed from them
// overflows.
template <std::size_t Rank, class Pointer>
[[gnu::always_inline]] inline void tidy(BasicView<Rank, Pointer>& view) {
  if (!view.given()) {
    view.strides = {};
    return;
  }
  for (std::size_t i = 0; i < Rank; ++i) {
    if (view.shape[i] <= 1) view.strides[i] = i + 1 == Rank ? 1 : 0;
  }
}

}  // namespace keel
