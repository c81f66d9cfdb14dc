#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

#include "core/call.h"
#include "cuda/lanes.h"
#include "keel/dtype.h"

#if defined(__CUDA_ARCH__)
#include <cuda_fp16.h>
#endif

// Elements as kernels read and write them: core/element.h for a GPU.
namespace keel::cuda {

// The type that sums over elements of type T are kept in.
template <class T>
using Sum = std::conditional_t<std::is_same_v<T, double>, double, float>;

KEEL_HD constexpr double number(double x) { return x; }
KEEL_HD constexpr float number(float x) { return x; }
KEEL_HD constexpr float number(BFloat16 x) { return to_float(x); }
KEEL_HD inline float number(Float16 x) {
#if defined(__CUDA_ARCH__)
  return __half2float(__ushort_as_half(x.bits));
#else
  return to_float(x);
#endif
}

// The bits of x in a 16-bit type, rounded once, to nearest, ties to even, as to_float16() and to_bfloat16() round.
KEEL_HD constexpr std::uint16_t narrowed(double x, int fraction_bits, int exponent_bits) {
  const std::uint64_t bits = std::bit_cast<std::uint64_t>(x), magnitude = bits << 1 >> 1;
  const auto sign = static_cast<std::uint32_t>(bits >> 63 << 15);
  const std::uint32_t infinite = ((1u << exponent_bits) - 1) << fraction_bits;
  if (magnitude > 0x7FF0000000000000u) return static_cast<std::uint16_t>(sign | infinite | 1u << (fraction_bits - 1));
  const int exponent = static_cast<int>(magnitude >> 52) - 1023, least = 2 - (1 << (exponent_bits - 1));
  const int above = exponent > least ? exponent - least : 0;  // subnormals have the spacing of the least exponent
  const int shift = 52 - fraction_bits + (exponent < least ? least - exponent : 0);
  if (shift > 54) return static_cast<std::uint16_t>(sign);
  const std::uint64_t significand = (magnitude & 0xFFFFFFFFFFFFFu) | 0x10000000000000u;
  std::uint64_t kept = significand >> shift;
  const std::uint64_t rest = significand - (kept << shift), half = std::uint64_t{1} << (shift - 1);
  if (rest > half || (rest == half && kept % 2 == 1)) ++kept;
  const std::uint64_t rounded = kept + (static_cast<std::uint64_t>(above) << fraction_bits);
  return static_cast<std::uint16_t>(sign | (rounded < infinite ? static_cast<std::uint32_t>(rounded) : infinite));
}

KEEL_HD constexpr void put(double& to, double x) { to = x; }
KEEL_HD constexpr void put(float& to, double x) { to = static_cast<float>(x); }
KEEL_HD constexpr void put(Float16& to, double x) { to.bits = narrowed(x, 10, 5); }
KEEL_HD constexpr void put(BFloat16& to, double x) { to.bits = narrowed(x, 7, 8); }

template <class A>
KEEL_HD A load_as(const void* data, DType dtype, std::int64_t index) {
  switch (dtype) {
    case DType::f64:
      return static_cast<A>(static_cast<const double*>(data)[index]);
    case DType::f32:
      return static_cast<A>(static_cast<const float*>(data)[index]);
    case DType::f16:
      return static_cast<A>(number(static_cast<const Float16*>(data)[index]));
    case DType::bf16:
      return static_cast<A>(number(static_cast<const BFloat16*>(data)[index]));
    case DType::boolean:
      return static_cast<A>(static_cast<const std::uint8_t*>(data)[index] != 0);
    case DType::i64:
      return static_cast<A>(static_cast<const std::int64_t*>(data)[index]);
  }
  return A{0};
}

KEEL_HD inline void store_as(void* data, DType dtype, std::int64_t index, double value) {
  switch (dtype) {
    case DType::f64:
      return put(static_cast<double*>(data)[index], value);
    case DType::f32:
      return put(static_cast<float*>(data)[index], value);
    case DType::f16:
      return put(static_cast<Float16*>(data)[index], value);
    case DType::bf16:
      return put(static_cast<BFloat16*>(data)[index], value);
    case DType::boolean:
      static_cast<std::uint8_t*>(data)[index] = value != 0.0 ? 1 : 0;
      return;
    case DType::i64:
      static_cast<std::int64_t*>(data)[index] = static_cast<std::int64_t>(value);
      return;
  }
}

// Where an element of an array lies, in elements from its data.
template <class Pointer>
KEEL_HD constexpr std::int64_t place_in(const BasicStrided<Pointer>& x, std::int64_t b, std::int64_t h, std::int64_t i,
                                        std::int64_t c = 0) {
  return b * x.batch + h * x.head + i * x.row + c * x.column;
}

// One row of an array whose elements have type T.
template <class T>
struct Elements {
  const T* data;
  std::int64_t stride;
  KEEL_HD Sum<T> operator[](std::int64_t c) const { return number(data[c * stride]); }
};

template <class T>
KEEL_HD Elements<T> elements(const Strided& x, std::int64_t b, std::int64_t h, std::int64_t i) {
  return {static_cast<const T*>(x.data) + place_in(x, b, h, i), x.column};
}

// One row of an array of any dtype, read as A.
template <class A>
struct AnyElements {
  const void* data;
  DType dtype;
  std::int64_t first, stride;
  KEEL_HD A operator[](std::int64_t c) const { return load_as<A>(data, dtype, first + c * stride); }
};

template <class A>
KEEL_HD AnyElements<A> any_elements(const Strided& x, std::int64_t b, std::int64_t h, std::int64_t i) {
  return {x.data, x.dtype, place_in(x, b, h, i), x.column};
}

template <class A, class Pointer>
KEEL_HD A load_row_value(const BasicStrided<Pointer>& x, std::int64_t b, std::int64_t h, std::int64_t i) {
  return load_as<A>(x.data, x.dtype, place_in(x, b, h, i));
}

// Calls f with a value of the type that a floating dtype names.
template <class F>
auto with_element(DType dtype, const F& f) {
  switch (dtype) {
    case DType::f64:
      return f(double{});
    case DType::f16:
      return f(Float16{});
    case DType::bf16:
      return f(BFloat16{});
    default:
      return f(float{});
  }
}

}  // namespace keel::cuda
