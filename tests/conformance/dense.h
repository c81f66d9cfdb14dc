#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "core/element.h"

namespace keel::conformance {

// A gap-free float64 array of up to four dimensions.
struct Dense {
  std::array<std::int64_t, 4> shape{1, 1, 1, 1};
  std::vector<double> values;

  Dense() = default;
  explicit Dense(const std::array<std::int64_t, 4>& shape_) : shape(shape_) {
    values.assign(static_cast<std::size_t>(shape[0] * shape[1] * shape[2] * shape[3]), 0.0);
  }

  std::size_t place(std::int64_t b, std::int64_t h = 0, std::int64_t n = 0, std::int64_t d = 0) const {
    return static_cast<std::size_t>(((b * shape[1] + h) * shape[2] + n) * shape[3] + d);
  }
  double& at(std::int64_t b, std::int64_t h = 0, std::int64_t n = 0, std::int64_t d = 0) {
    return values[place(b, h, n, d)];
  }
  double at(std::int64_t b, std::int64_t h = 0, std::int64_t n = 0, std::int64_t d = 0) const {
    return values[place(b, h, n, d)];
  }

  MutableTensorView tensor() { return {values.data(), DType::f64, shape, contiguous_strides(shape)}; }
  MutableRowView rows() {
    const std::array<std::int64_t, 3> three = {shape[0], shape[1], shape[2]};
    return {values.data(), DType::f64, three, contiguous_strides(three)};
  }
};

// Copies what a view shows.
template <std::size_t Rank, class Pointer>
Dense read(const BasicView<Rank, Pointer>& view) {
  std::array<std::int64_t, 4> shape{1, 1, 1, 1}, strides{};
  for (std::size_t i = 0; i < Rank; ++i) {
    shape[i] = view.shape[i];
    strides[i] = view.strides[i];
  }
  Dense dense(shape);
  std::size_t at = 0;
  for (std::int64_t b = 0; b < shape[0]; ++b) {
    for (std::int64_t h = 0; h < shape[1]; ++h) {
      for (std::int64_t n = 0; n < shape[2]; ++n) {
        for (std::int64_t d = 0; d < shape[3]; ++d) {
          dense.values[at++] =
              load(view.data, view.dtype, b * strides[0] + h * strides[1] + n * strides[2] + d * strides[3]);
        }
      }
    }
  }
  return dense;
}

// The same with a dimension of stride 0 taken once, as gradients are written that are summed over it.
template <std::size_t Rank, class Pointer>
Dense read_sum(BasicView<Rank, Pointer> view) {
  for (std::size_t i = 0; i < Rank; ++i) {
    if (view.strides[i] == 0 && view.shape[i] > 1) view.shape[i] = 1;
  }
  return read(view);
}

// Copies what one view shows to another of the same shape, where that is given.
template <std::size_t Rank, class Pointer>
void copy(const BasicView<Rank, Pointer>& from, const BasicView<Rank, void*>& to) {
  std::int64_t count = to.given() ? 1 : 0;
  for (const std::int64_t n : to.shape) count *= n;
  for (std::int64_t i = 0; i < count; ++i) {
    std::int64_t left = i, source = 0, target = 0;
    for (std::size_t d = Rank; d-- > 0; left /= to.shape[d]) {
      source += left % to.shape[d] * from.strides[d];
      target += left % to.shape[d] * to.strides[d];
    }
    store(to.data, to.dtype, target, load(from.data, from.dtype, source));
  }
}

}  // namespace keel::conformance
