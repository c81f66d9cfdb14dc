#pragma once

#include <array>
#include <cstdint>

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

[[nodiscard]] bool is_empty(const Layout& layout);

// The number of elements of a view; INT64_MAX if it overflows.
[[nodiscard]] std::int64_t count(const Layout& layout);

// Whether no two elements overlap. Exact for layouts whose dimensions nest (each stride steps over all that
// the smaller ones reach), which every slice, transpose or reshape of an array is; others count as overlapping. If the
// view `reduces`, what is written along a stride of 0 is a sum, and one element.
[[nodiscard]] bool has_distinct_elements(const Layout& layout, bool reduces = false);

// The bytes that a view spans, from first to last: [low, low + size). Everything if it does not fit.
struct Span {
  std::uintptr_t low = 0, size = 0;
};

// `fits`: all elements lie within 2^60 bytes, so that no offset can overflow. The same is required of
// the other dimensions of a view without elements: loops over those still compute with their strides.
struct Extent {
  bool fits = false;
  Span span;
};
[[nodiscard]] Extent extent_of(const Layout& layout);

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
void tidy(BasicView<Rank, Pointer>& view) {
  if (!view.given()) {
    view.strides = {};
    return;
  }
  for (std::size_t i = 0; i < Rank; ++i) {
    if (view.shape[i] <= 1) view.strides[i] = i + 1 == Rank ? 1 : 0;
  }
}

}  // namespace keel
