#pragma once

#include <algorithm>
#include <array>
#include <cstring>

#include "keel/view.h"

namespace keel::cpu {

// 0 in every element; a dimension of stride 0 is one element.
template <std::size_t Rank>
void zero(const BasicView<Rank, void*>& view) {
  if (!view.given()) return;
  std::array<std::int64_t, 4> count{1, 1, 1, 1}, strides{};
  for (std::size_t i = 0; i < Rank; ++i) {  // the view's last dimension is the last of four
    const std::size_t at = 4 - Rank + i;
    count[at] = view.strides[i] == 0 ? std::min<std::int64_t>(view.shape[i], 1) : view.shape[i];
    strides[at] = view.strides[i];
  }
  if (std::min({count[0], count[1], count[2], count[3]}) == 0) return;
  const std::int64_t item = size_of(view.dtype);  // 0 is all bits 0 in every dtype
  const std::int64_t run = strides[3] == 1 ? count[3] : 1;
  for (std::int64_t b = 0; b < count[0]; ++b) {
    for (std::int64_t h = 0; h < count[1]; ++h) {
      for (std::int64_t n = 0; n < count[2]; ++n) {
        for (std::int64_t d = 0; d < count[3]; d += run) {
          const std::int64_t at = b * strides[0] + h * strides[1] + n * strides[2] + d * strides[3];
          std::memset(static_cast<std::byte*>(view.data) + at * item, 0, static_cast<std::size_t>(run * item));
        }
      }
    }
  }
}

}  // namespace keel::cpu
