// Between the caller's arrays (any dtype, any strides) and the kernel's scratch (accumulation type, aligned, padded).
#if defined(KEEL_CPU_PACK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KEEL_CPU_PACK_INL_H_
#undef KEEL_CPU_PACK_INL_H_
#else
#define KEEL_CPU_PACK_INL_H_
#endif

#include <hwy/highway.h>

#include <cmath>
#include <cstring>

#include "cpu/forward.h"
#include "keel/dtype.h"

HWY_BEFORE_NAMESPACE();
namespace keel::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Whether this target converts half floats itself; elsewhere that goes through scalar code.
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_NEON || HWY_TARGET == HWY_SVE || \
    HWY_TARGET == HWY_SVE2
constexpr bool kHardwareHalf = true;
#else
constexpr bool kHardwareHalf = false;
#endif

template <class T, class S>
HWY_INLINE T ToScalar(S x) {
  if constexpr (sizeof(S) == 2) {
    return to_float(x);
  } else {
    return static_cast<T>(x);
  }
}

template <class T, class S>
HWY_INLINE S FromScalar(T x) {
  if constexpr (std::is_same_v<S, Float16>) {
    return to_float16(x);
  } else if constexpr (std::is_same_v<S, BFloat16>) {
    return to_bfloat16(x);
  } else {
    return static_cast<S>(x);
  }
}

// A vector of accumulation type from consecutive elements of type S, unaligned.
template <class D, class S>
HWY_INLINE hn::Vec<D> LoadAs(D d, const S* from) {
  using T = hn::TFromD<D>;
  if constexpr (std::is_same_v<S, T>) {
    return hn::LoadU(d, from);
  } else if constexpr (std::is_same_v<S, BFloat16> && sizeof(T) == 4) {
    const hn::Rebind<std::uint16_t, D> du16;
    const hn::RebindToUnsigned<D> du;
    const auto bits = hn::LoadU(du16, reinterpret_cast<const std::uint16_t*>(from));
    return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(du, bits)));
  } else if constexpr (std::is_same_v<S, Float16> && sizeof(T) == 4 && kHardwareHalf) {
    const hn::Rebind<hwy::float16_t, D> d16;
    return hn::PromoteTo(d, hn::LoadU(d16, reinterpret_cast<const hwy::float16_t*>(from)));
  } else {
    HWY_ALIGN T lanes[HWY_MAX_BYTES / sizeof(T)];
    for (std::size_t i = 0; i < hn::Lanes(d); ++i) lanes[i] = ToScalar<T>(from[i]);
    return hn::Load(d, lanes);
  }
}

template <class D, class S, class V = hn::Vec<D>>
HWY_INLINE void StoreAs(D d, V x, S* to) {
  using T = hn::TFromD<D>;
  if constexpr (std::is_same_v<S, T>) {
    hn::StoreU(x, d, to);
  } else if constexpr (std::is_same_v<S, Float16> && sizeof(T) == 4 && kHardwareHalf) {
    const hn::Rebind<hwy::float16_t, D> d16;
    hn::StoreU(hn::DemoteTo(d16, x), d16, reinterpret_cast<hwy::float16_t*>(to));
  } else if constexpr (std::is_same_v<S, BFloat16> && sizeof(T) == 4) {
    // Nearest, ties to even: add 0x7FFF plus the lowest bit that stays. NaN becomes the quiet one.
    const hn::RebindToUnsigned<D> du;
    const hn::RebindToSigned<D> di;
    const hn::Rebind<std::uint16_t, D> du16;
    const auto bits = hn::BitCast(du, x);
    const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1u));
    const auto rounded = hn::ShiftRight<16>(hn::Add(bits, hn::Add(odd, hn::Set(du, 0x7FFFu))));
    const auto nan = hn::RebindMask(du, hn::IsNaN(x));
    const auto kept = hn::IfThenElse(nan, hn::Set(du, 0x7FC0u), rounded);
    hn::StoreU(hn::DemoteTo(du16, hn::BitCast(di, kept)), du16, reinterpret_cast<std::uint16_t*>(to));
  } else {
    HWY_ALIGN T lanes[HWY_MAX_BYTES / sizeof(T)];
    hn::Store(x, d, lanes);
    for (std::size_t i = 0; i < hn::Lanes(d); ++i) to[i] = FromScalar<T, S>(lanes[i]);
  }
}

// Calls f with a null pointer of the element type of a floating dtype.
template <class T, class F>
HWY_INLINE void WithType(DType dtype, F&& f) {
  if constexpr (sizeof(T) == 8) {
    if (dtype == DType::f64) return f(static_cast<const double*>(nullptr));
  }
  switch (dtype) {
    case DType::f16:
      return f(static_cast<const Float16*>(nullptr));
    case DType::bf16:
      return f(static_cast<const BFloat16*>(nullptr));
    default:
      return f(static_cast<const float*>(nullptr));
  }
}

// to[0, n) = factor · from[0, n), the source `stride` elements apart.
template <class T>
HWY_INLINE void LoadRow(DType dtype, const void* from, std::int64_t at, std::int64_t stride, std::int64_t n, T factor,
                        T* HWY_RESTRICT to) {
  WithType<T>(dtype, [&](auto* type) {
    const auto* source = static_cast<decltype(type)>(from) + at;
    const hn::ScalableTag<T> d;
    const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
    std::int64_t c = 0;
    if (stride == 1) {
      for (; c + lanes <= n; c += lanes) hn::StoreU(hn::Mul(LoadAs(d, source + c), hn::Set(d, factor)), d, to + c);
    }
    for (; c < n; ++c) to[c] = ToScalar<T>(source[c * stride]) * factor;
  });
}

// to[0, n) = factor · from[0, n), the destination `stride` elements apart.
template <class T>
HWY_INLINE void StoreRow(DType dtype, void* to, std::int64_t at, std::int64_t stride, std::int64_t n, T factor,
                         const T* HWY_RESTRICT from) {
  WithType<T>(dtype, [&](auto* type) {
    using S = std::remove_const_t<std::remove_pointer_t<decltype(type)>>;
    S* target = static_cast<S*>(to) + at;
    const hn::ScalableTag<T> d;
    const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
    std::int64_t c = 0;
    if (stride == 1) {
      for (; c + lanes <= n; c += lanes) StoreAs(d, hn::Mul(hn::LoadU(d, from + c), hn::Set(d, factor)), target + c);
    }
    for (; c < n; ++c) target[c * stride] = FromScalar<T, S>(from[c] * factor);
  });
}

// One value, for the few there is one of a row or head.
template <class T>
HWY_INLINE T LoadOne(DType dtype, const void* from, std::int64_t at) {
  if (dtype == DType::f64) return static_cast<T>(static_cast<const double*>(from)[at]);
  T value = 0;
  WithType<T>(dtype, [&](auto* type) { value = ToScalar<T>(static_cast<decltype(type)>(from)[at]); });
  return value;
}

// Keys by columns, four by four (two by two for double), transposed in registers of 128 bits.
#if HWY_TARGET == HWY_SCALAR
template <class T>
constexpr std::int64_t kSquare = 1;
template <class S, class T>
HWY_INLINE void TransposeSquare(const S* from, std::int64_t, T* to, std::int64_t) {
  *to = ToScalar<T>(*from);
}
#else
template <class T>
constexpr std::int64_t kSquare = 16 / sizeof(T);
template <class S>
HWY_INLINE void TransposeSquare(const S* from, std::int64_t row_stride, float* to, std::int64_t ldt) {
  const hn::FixedTag<float, 4> d;
  const hn::FixedTag<double, 2> dd;
  const auto a = LoadAs(d, from), b = LoadAs(d, from + row_stride);
  const auto c = LoadAs(d, from + 2 * row_stride), e = LoadAs(d, from + 3 * row_stride);
  const auto ab_low = hn::BitCast(dd, hn::InterleaveLower(d, a, b));
  const auto ce_low = hn::BitCast(dd, hn::InterleaveLower(d, c, e));
  const auto ab_high = hn::BitCast(dd, hn::InterleaveUpper(d, a, b));
  const auto ce_high = hn::BitCast(dd, hn::InterleaveUpper(d, c, e));
  hn::Store(hn::BitCast(d, hn::InterleaveLower(dd, ab_low, ce_low)), d, to);
  hn::Store(hn::BitCast(d, hn::InterleaveUpper(dd, ab_low, ce_low)), d, to + ldt);
  hn::Store(hn::BitCast(d, hn::InterleaveLower(dd, ab_high, ce_high)), d, to + 2 * ldt);
  hn::Store(hn::BitCast(d, hn::InterleaveUpper(dd, ab_high, ce_high)), d, to + 3 * ldt);
}
template <class S>
HWY_INLINE void TransposeSquare(const S* from, std::int64_t row_stride, double* to, std::int64_t ldt) {
  const hn::FixedTag<double, 2> d;
  const auto a = LoadAs(d, from), b = LoadAs(d, from + row_stride);
  hn::Store(hn::InterleaveLower(d, a, b), d, to);
  hn::Store(hn::InterleaveUpper(d, a, b), d, to + ldt);
}
#endif

// Keys [j, j + keys) as one panel kᵀ (d_k, width); columns from `keys` to `width` become 0.
template <class T>
HWY_NOINLINE void PackPanel(DType dtype, const Rows& k, std::int64_t j, std::int64_t keys, std::int64_t d_k,
                            std::int64_t width, T* HWY_RESTRICT panel) {
  constexpr std::int64_t side = kSquare<T>;
  WithType<T>(dtype, [&](auto* type) {
    const auto* source = static_cast<decltype(type)>(k.data) + j * k.row_stride;
    if (keys < width) std::memset(panel, 0, static_cast<std::size_t>(width * d_k) * sizeof(T));
    const bool contiguous = k.column_stride == 1;
    const std::int64_t whole_keys = contiguous ? keys / side * side : 0;
    const std::int64_t whole_columns = contiguous ? d_k / side * side : 0;
    for (std::int64_t x = 0; x < whole_keys; x += side) {
      for (std::int64_t c = 0; c < whole_columns; c += side) {
        TransposeSquare(source + x * k.row_stride + c, k.row_stride, panel + c * width + x, width);
      }
      for (std::int64_t c = whole_columns; c < d_k; ++c) {
        for (std::int64_t y = x; y < x + side; ++y) panel[c * width + y] = ToScalar<T>(source[y * k.row_stride + c]);
      }
    }
    for (std::int64_t x = whole_keys; x < keys; ++x) {
      for (std::int64_t c = 0; c < d_k; ++c) {
        panel[c * width + x] = ToScalar<T>(source[x * k.row_stride + c * k.column_stride]);
      }
    }
  });
}

// Values [j, j + keys) as rows of ldv elements, padded with 0. Says whether all of them are finite.
template <class T>
HWY_NOINLINE bool PackValues(DType dtype, const Rows& v, std::int64_t j, std::int64_t keys, std::int64_t d_v,
                             std::int64_t ldv, T* HWY_RESTRICT to) {
  bool finite = true;
  WithType<T>(dtype, [&](auto* type) {
    const hn::ScalableTag<T> d;
    auto worst = hn::Zero(d);  // x·0 is 0 for finite x and NaN otherwise
    for (std::int64_t x = 0; x < keys; ++x) {
      const auto* source = static_cast<decltype(type)>(v.data) + (j + x) * v.row_stride;
      T* const row = to + x * ldv;
      const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
      std::int64_t c = 0;
      if (v.column_stride == 1) {
        for (; c + lanes <= d_v; c += lanes) {
          const auto values = LoadAs(d, source + c);
          worst = hn::MulAdd(values, hn::Zero(d), worst);
          hn::Store(values, d, row + c);
        }
      }
      if (c == ldv) continue;
      for (; c < d_v; ++c) row[c] = ToScalar<T>(source[c * v.column_stride]);
      for (; c < ldv; ++c) row[c] = 0;
      const std::int64_t last = ldv - lanes;
      if (v.column_stride == 1) {
        worst = hn::MulAdd(hn::Load(d, row + last), hn::Zero(d), worst);
      } else {
        for (c = 0; c < ldv; c += lanes) worst = hn::MulAdd(hn::Load(d, row + c), hn::Zero(d), worst);
      }
    }
    finite = hn::AllFalse(d, hn::IsNaN(worst));
  });
  return finite;
}

}  // namespace keel::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
