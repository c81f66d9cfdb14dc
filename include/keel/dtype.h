#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "keel/export.h"

namespace keel {

// The type of an array's elements. The four floating types are for q, k, v and the output; `boolean` (one byte, 0 or 1)
// is for masks, `i64` for counts.
enum class DType : std::uint8_t { f64, f32, f16, bf16, boolean, i64 };

// Storage of the two 16-bit types: IEEE binary16, and the upper half of a binary32.
struct Float16 {
  std::uint16_t bits = 0;
};
struct BFloat16 {
  std::uint16_t bits = 0;
};

[[nodiscard]] constexpr std::int64_t size_of(DType dtype) noexcept {
  switch (dtype) {
    case DType::f64:
    case DType::i64:
      return 8;
    case DType::f32:
      return 4;
    case DType::f16:
    case DType::bf16:
      return 2;
    case DType::boolean:
      return 1;
  }
  return 0;
}

[[nodiscard]] constexpr const char* name_of(DType dtype) noexcept {
  switch (dtype) {
    case DType::f64:
      return "f64";
    case DType::f32:
      return "f32";
    case DType::f16:
      return "f16";
    case DType::bf16:
      return "bf16";
    case DType::boolean:
      return "bool";
    case DType::i64:
      return "i64";
  }
  return "unknown";
}

[[nodiscard]] constexpr bool is_floating(DType dtype) noexcept {
  return dtype == DType::f64 || dtype == DType::f32 || dtype == DType::f16 || dtype == DType::bf16;
}

// The type in which sums are kept, and the type of lse and of the row statistics: f64 for f64, f32 for all others.
[[nodiscard]] constexpr DType accumulation_dtype(DType dtype) noexcept {
  return dtype == DType::f64 ? DType::f64 : DType::f32;
}

// DType of a C++ element type: dtype_of<float> == DType::f32.
template <class T>
struct DTypeOf;
template <>
struct DTypeOf<double> {
  static constexpr DType value = DType::f64;
};
template <>
struct DTypeOf<float> {
  static constexpr DType value = DType::f32;
};
template <>
struct DTypeOf<Float16> {
  static constexpr DType value = DType::f16;
};
template <>
struct DTypeOf<BFloat16> {
  static constexpr DType value = DType::bf16;
};
template <>
struct DTypeOf<bool> {
  static constexpr DType value = DType::boolean;
};
template <>
struct DTypeOf<std::int64_t> {
  static constexpr DType value = DType::i64;
};
template <class T>
inline constexpr DType dtype_of = DTypeOf<T>::value;

[[nodiscard]] constexpr float to_float(BFloat16 x) noexcept {
  return std::bit_cast<float>(static_cast<std::uint32_t>(x.bits) << 16);
}

[[nodiscard]] constexpr float to_float(Float16 x) noexcept {
  const std::uint32_t sign = static_cast<std::uint32_t>(x.bits & 0x8000u) << 16;
  const std::uint32_t exponent = (x.bits >> 10) & 0x1Fu;
  const std::uint32_t fraction = x.bits & 0x3FFu;
  if (exponent == 0) {  // zero and subnormals: fraction · 2⁻²⁴, exact in binary32
    const float magnitude = static_cast<float>(fraction) * 0x1p-24f;
    return sign != 0 ? -magnitude : magnitude;
  }
  if (exponent == 0x1F) return std::bit_cast<float>(sign | 0x7F800000u | (fraction << 13));
  return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (fraction << 13));
}

// Rounds to nearest, ties to even; overflow gives infinity, NaN stays NaN. From double in one rounding.
[[nodiscard]] KEEL_API Float16 to_float16(double x) noexcept;
[[nodiscard]] KEEL_API BFloat16 to_bfloat16(double x) noexcept;

}  // namespace keel
