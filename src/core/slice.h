#pragma once

#include <cstddef>
#include <type_traits>

#include "keel/view.h"

namespace keel {

// Rows [begin, end) of a view along a dimension that has size `full`; what is broadcast there stays as it is.
template <std::size_t Rank, class Pointer>
BasicView<Rank, Pointer> slice(BasicView<Rank, Pointer> x, std::size_t dimension, std::int64_t begin, std::int64_t end,
                               std::int64_t full) {
  if (!x.given() || (x.shape[dimension] == 1 && full != 1)) return x;
  using Byte = std::conditional_t<std::is_same_v<Pointer, void*>, std::byte, const std::byte>;
  if (x.data != nullptr && begin < end) {
    x.data = static_cast<Byte*>(x.data) + begin * x.strides[dimension] * size_of(x.dtype);
  }
  x.shape[dimension] = end - begin;
  return x;
}

}  // namespace keel
