// Vectors of the accumulation type from and to arrays of any floating dtype.
#if defined(KEEL_CPU_CONVERT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KEEL_CPU_CONVERT_INL_H_
#undef KEEL_CPU_CONVERT_INL_H_
#else
#define KEEL_CPU_CONVERT_INL_H_
#endif

#include <hwy/highway.h>

#include <type_traits>

#include "keel/dtype.h"

HWY_BEFORE_NAMESPACE();
namespace keel::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// From memory a line is prefetched into the second-level cache: in the first level it would hold one of the few fill
// buffers until it arrives.
HWY_INLINE void PrefetchToL2(const void* line) { __builtin_prefetch(line, /*to write*/ 0, /*locality*/ 2); }
HWY_INLINE void PrefetchToL1(const void* line) { __builtin_prefetch(line, /*to write*/ 0, /*locality*/ 3); }

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

// The two bf16 values in every word of a vector, separated over all words: cheaper than widening consecutive ones.
template <class D>
HWY_INLINE hn::Vec<D> EvenOfWords(D d, hn::Vec<D> words) {
  return hn::BitCast(d, hn::ShiftLeft<16>(hn::BitCast(hn::RebindToUnsigned<D>(), words)));
}
template <class D>
HWY_INLINE hn::Vec<D> OddOfWords(D d, hn::Vec<D> words) {
  const hn::RebindToUnsigned<D> du;
  return hn::BitCast(d, hn::And(hn::BitCast(du, words), hn::Set(du, 0xFFFF0000u)));
}

// Floats rounded to bf16, in the upper halves of words: to nearest, ties to even, by adding 0x7FFF plus the lowest bit
// that stays. NaN becomes the quiet one.
template <class D, class V = hn::Vec<D>>
HWY_INLINE hn::Vec<hn::RebindToUnsigned<D>> RoundedWords(D, V x) {
  const hn::RebindToUnsigned<D> du;
  const auto bits = hn::BitCast(du, x);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1u));
  const auto rounded = hn::Add(bits, hn::Add(odd, hn::Set(du, 0x7FFFu)));
  return hn::IfThenElse(hn::RebindMask(du, hn::IsNaN(x)), hn::Set(du, 0x7FC00000u), rounded);
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
    const hn::RebindToSigned<D> di;
    const hn::Rebind<std::uint16_t, D> du16;
    const auto halves = hn::BitCast(di, hn::ShiftRight<16>(RoundedWords(d, x)));
    hn::StoreU(hn::DemoteTo(du16, halves), du16, reinterpret_cast<std::uint16_t*>(to));
  } else {
    HWY_ALIGN T lanes[HWY_MAX_BYTES / sizeof(T)];
    hn::Store(x, d, lanes);
    for (std::size_t i = 0; i < hn::Lanes(d); ++i) to[i] = FromScalar<T, S>(lanes[i]);
  }
}

// Two successive vectors: bf16 of both are packed at once.
template <class D, class S, class V = hn::Vec<D>>
HWY_INLINE void StoreTwoAs(D d, V first, V second, S* to) {
#if HWY_TARGET != HWY_SCALAR
  if constexpr (std::is_same_v<S, BFloat16> && sizeof(hn::TFromD<D>) == 4) {
    const hn::Repartition<std::uint16_t, D> du16;
    const auto low = hn::BitCast(du16, RoundedWords(d, first)), high = hn::BitCast(du16, RoundedWords(d, second));
    hn::StoreU(hn::ConcatOdd(du16, high, low), du16, reinterpret_cast<std::uint16_t*>(to));
    return;
  }
#endif
  StoreAs(d, first, to);
  StoreAs(d, second, to + hn::Lanes(d));
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

}  // namespace keel::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
