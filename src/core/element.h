#pragma once

#include <cstdint>

#include "keel/view.h"

namespace keel {

// Element `index` (in elements from data) as a double.
inline double load(const void* data, DType dtype, std::int64_t index) {
  switch (dtype) {
    case DType::f64:
      return static_cast<const double*>(data)[index];
    case DType::f32:
      return static_cast<const float*>(data)[index];
    case DType::f16:
      return to_float(static_cast<const Float16*>(data)[index]);
    case DType::bf16:
      return to_float(static_cast<const BFloat16*>(data)[index]);
    case DType::boolean:
      return static_cast<const std::uint8_t*>(data)[index] != 0 ? 1.0 : 0.0;
    case DType::i64:
      return static_cast<double>(static_cast<const std::int64_t*>(data)[index]);
  }
  return 0.0;
}

// Rounded to the element type once.
inline void store(void* data, DType dtype, std::int64_t index, double value) {
  switch (dtype) {
    case DType::f64:
      static_cast<double*>(data)[index] = value;
      return;
    case DType::f32:
      static_cast<float*>(data)[index] = static_cast<float>(value);
      return;
    case DType::f16:
      static_cast<Float16*>(data)[index] = to_float16(value);
      return;
    case DType::bf16:
      static_cast<BFloat16*>(data)[index] = to_bfloat16(value);
      return;
    case DType::boolean:
      static_cast<std::uint8_t*>(data)[index] = value != 0.0 ? 1 : 0;
      return;
    case DType::i64:
      static_cast<std::int64_t*>(data)[index] = static_cast<std::int64_t>(value);
      return;
  }
}

template <class Pointer>
std::int64_t offset(const BasicView<4, Pointer>& x, std::int64_t b, std::int64_t h, std::int64_t n, std::int64_t d) {
  return b * x.strides[0] + h * x.strides[1] + n * x.strides[2] + d * x.strides[3];
}
template <class Pointer>
std::int64_t offset(const BasicView<3, Pointer>& x, std::int64_t b, std::int64_t h, std::int64_t n) {
  return b * x.strides[0] + h * x.strides[1] + n * x.strides[2];
}
template <class Pointer>
std::int64_t offset(const BasicView<2, Pointer>& x, std::int64_t h, std::int64_t c) {
  return h * x.strides[0] + c * x.strides[1];
}
template <class Pointer>
std::int64_t offset(const BasicView<1, Pointer>& x, std::int64_t h) {
  return h * x.strides[0];
}

template <std::size_t Rank, class Pointer, class... Index>
double load_at(const BasicView<Rank, Pointer>& x, Index... index) {
  return load(x.data, x.dtype, offset(x, index...));
}
template <std::size_t Rank, class... Index>
void store_at(const BasicView<Rank, void*>& x, double value, Index... index) {
  store(x.data, x.dtype, offset(x, index...), value);
}

}  // namespace keel
