#pragma once

#include <array>
#include <cstdint>

#include "keel/view.h"

namespace keel {

// Where the elements of a view lie: `rank` dimensions of `shape` elements, `strides` elements apart, from address
// `base`.
struct Layout {
  std::uintptr_t base = 0;
  std::int64_t item = 1;  // bytes an element
  int rank = 0;
  std::array<std::int64_t, 4> shape{};
  std::array<std::int64_t, 4> strides{};
};

template <std::size_t Rank, class Pointer>
Layout layout_of(const BasicView<Rank, Pointer>& view) {
  Layout layout{reinterpret_cast<std::uintptr_t>(view.data), size_of(view.dtype), static_cast<int>(Rank), {}, {}};
  for (std::size_t i = 0; i < Rank; ++i) {
    layout.shape[i] = view.shape[i];
    layout.strides[i] = view.strides[i];
  }
  return layout;
}

bool is_empty(const Layout& layout);

// How many elements a view shows; INT64_MAX where that is not a number.
std::int64_t count(const Layout& layout);

// Whether each element has a place of its own. Exact for layouts whose dimensions nest (each stride steps over all that
// the smaller ones reach), which every slice, transpose or reshape of an array is; others count as overlapping.
bool has_distinct_elements(const Layout& layout);

// The bytes from the first to the last that a view shows: [low, low + size). All there are where it does not fit.
struct Span {
  std::uintptr_t low = 0, size = 0;
};

// `fits`: all elements lie within 2^60 bytes, so that no offset can overflow. A view without elements is asked the same
// of its other dimensions: whoever walks those reckons with their strides.
struct Extent {
  bool fits = false;
  Span span;
};
Extent extent_of(const Layout& layout);

inline bool are_apart(const Span& a, const Span& b) {
  return a.low <= b.low ? b.low - a.low >= a.size : a.low - b.low >= b.size;
}

// Whether two views share a byte. Exact but for a bound on the work, past which the answer is yes: interleaved views
// such as the q, k and v of one packed array are told apart.
bool share_memory(const Layout& a, const Layout& b);

// Strides that take nobody anywhere may be any number, and were not checked: those of a view that is not given, and
// along dimensions of size 0 or 1. They become those of a plain array, so that no offset made of them overflows.
template <std::size_t Rank, class Pointer>
void tidy(BasicView<Rank, Pointer>& view) {
  if (!view.given()) view = {};
  for (std::size_t i = 0; i < Rank; ++i) {
    if (view.shape[i] <= 1) view.strides[i] = i + 1 == Rank ? 1 : 0;
  }
}

}  // namespace keel
