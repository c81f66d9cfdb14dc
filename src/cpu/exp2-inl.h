// 2^x and tanh for vectors of float and double, log₂ for float.
#if defined(KEEL_CPU_EXP2_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KEEL_CPU_EXP2_INL_H_
#undef KEEL_CPU_EXP2_INL_H_
#else
#define KEEL_CPU_EXP2_INL_H_
#endif

#include <hwy/highway.h>

#include <cmath>
#include <initializer_list>

#include "cpu/flush.h"

HWY_BEFORE_NAMESPACE();
namespace keel::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

constexpr double kLog2E = 1.44269504088896340736;
constexpr double kLn2 = 0.693147180559945309417;

// 2^f for |f| ≤ 1/2, exact at 0. Minimax fits of the relative error with the constant term held at 1: degree 5 for
// float (9.1e-8; 1.7e-7 with the rounding of its evaluation), degree 11 for double (8.4e-18).
template <class D, class V = hn::Vec<D>>
HWY_INLINE V Exp2Fraction(D d, V f) {
  if constexpr (sizeof(hn::TFromD<D>) == 4) {
    V y = hn::MulAdd(hn::Set(d, 0x1.5bba14p-10f), f, hn::Set(d, 0x1.3cea88p-7f));
    y = hn::MulAdd(y, f, hn::Set(d, 0x1.c6b752p-5f));
    y = hn::MulAdd(y, f, hn::Set(d, 0x1.ebf9bcp-3f));
    y = hn::MulAdd(y, f, hn::Set(d, 0x1.62e42ap-1f));
    return hn::MulAdd(y, f, hn::Set(d, 1.0f));
  } else {
    V y = hn::Set(d, 4.4549605981865186e-10);
    for (const double c : {7.072585949269223e-09, 1.0178062445845774e-07, 1.321544258792169e-06, 1.525273382983612e-05,
                           0.0001540353044173605, 0.0013333558146416936, 0.009618129107606888, 0.0555041086648216,
                           0.24022650695910097, 0.6931471805599453, 1.0}) {
      y = hn::MulAdd(y, f, hn::Set(d, c));
    }
    return y;
  }
}

// max(low, x) that keeps a NaN in x: x86 returns the second operand then, ARM any NaN. Elsewhere the number may win.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V AtLeast(D d, double low, V x) {
  const V bound = hn::Set(d, static_cast<hn::TFromD<D>>(low));
#if (HWY_ARCH_X86 || HWY_ARCH_ARM) && HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
  return hn::Max(bound, x);
#else
  return hn::IfThenElse(hn::Lt(x, bound), bound, x);
#endif
}

// The exponent from which on 2^x counts as 0.
template <class T>
constexpr double kLowestExponent = sizeof(T) == 4 ? -127 : -1023;

// 2^x for x ≤ 0. Exactly 0 from one below the exponent of the smallest normal number downwards, −inf included, so that
// what a mask hides has no weight; f32 on AVX-512 goes on through the denormal numbers, unless they are flushed. NaN
// stays NaN.
//
// Adding 1.5·2^(mantissa bits) leaves round(x) in the low bits of the sum; shifted into the exponent field they
// multiply the polynomial by 2^round(x). The clamp keeps that field from going below 0.
//
// AVX-512 has both steps as instructions: the fraction above floor(x), and a multiplication by 2^floor(x). The fit is
// one for [0, 1) then (8.2e-8; 1.5e-7 with rounding).
template <class D, class V = hn::Vec<D>>
HWY_INLINE V Exp2(D d, V x) {
  using T = hn::TFromD<D>;
#if HWY_TARGET == HWY_AVX3
  if constexpr (sizeof(T) == 4 && hn::MaxLanes(D()) == 16) {
    const V f = V{_mm512_reduce_ps(x.raw, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC)};
    V y = hn::MulAdd(hn::Set(d, 0x1.e974fap-10f), f, hn::Set(d, 0x1.277856p-7f));
    y = hn::MulAdd(y, f, hn::Set(d, 0x1.c91ce6p-5f));
    y = hn::MulAdd(y, f, hn::Set(d, 0x1.ebdb56p-3f));
    y = hn::MulAdd(y, f, hn::Set(d, 0x1.62e4bap-1f));
    y = hn::MulAdd(y, f, hn::Set(d, 1.0f));
    return V{_mm512_scalef_ps(y.raw, x.raw)};
  }
#endif
  constexpr int kMantissa = sizeof(T) == 4 ? 23 : 52;
  const V magic = hn::Set(d, static_cast<T>(sizeof(T) == 4 ? 0x1.8p23 : 0x1.8p52));
  const hn::RebindToUnsigned<D> du;
  x = AtLeast(d, kLowestExponent<T>, x);
  const V shifted = hn::Add(x, magic);
  const V f = hn::Sub(x, hn::Sub(shifted, magic));
  const auto exponent = hn::ShiftLeft<kMantissa>(hn::BitCast(du, shifted));
  return hn::BitCast(d, hn::Add(hn::BitCast(du, Exp2Fraction(d, f)), exponent));
}

// While one exists, denormal weights, which AVX-512's 2^x can produce, become 0 on cores where they are slow.
#if HWY_TARGET == HWY_AVX3
using NormalWeights = FlushToZero;
#else
struct NormalWeights {
  explicit NormalWeights(bool) {}
};
#endif

template <class T>
HWY_INLINE T Exp2Scalar(T x) {
  const hn::ScalableTag<T> d;
  return hn::GetLane(Exp2(d, hn::Set(d, x)));
}

// log₂(x) of normal numbers above 0, in float: e + log₂ z with x = 2^e·z and √½ ≤ z < √2, as a series in
// s = (z − 1)/(z + 1) (7e-10; less than an ulp of the result with rounding). 0 at 1, exact at powers of two.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V Log2(D d, V x) {
  const hn::RebindToSigned<D> di;
  const auto bits = hn::BitCast(di, x);
  const auto e = hn::ShiftRight<23>(hn::Sub(bits, hn::Set(di, 0x3F3504F3)));  // the bits of √½
  const V z = hn::BitCast(d, hn::Sub(bits, hn::ShiftLeft<23>(e))), one = hn::Set(d, 1.0f);
  const V s = hn::Div(hn::Sub(z, one), hn::Add(z, one)), u = hn::Mul(s, s);
  V y = hn::MulAdd(hn::Set(d, 0x1.ba1a08p-2f), u, hn::Set(d, 0x1.274716p-1f));
  y = hn::MulAdd(y, u, hn::Set(d, 0x1.ec70e6p-1f));
  y = hn::MulAdd(y, u, hn::Set(d, 0x1.715476p+1f));
  return hn::MulAdd(s, y, hn::ConvertTo(d, e));
}

// tanh(y). Float: an odd polynomial below 0.6 (relative error 3e-9), (1 − e)/(1 + e) with e = exp(−2|y|) above, so that
// small arguments keep their relative precision. Double goes through the C library.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V Tanh(D d, V y) {
  if constexpr (sizeof(hn::TFromD<D>) == 4) {
    const V z = hn::Mul(y, y);
    V small = hn::MulAdd(hn::Set(d, -0.005895159204f), z, hn::Set(d, 0.02079597263f));
    small = hn::MulAdd(small, z, hn::Set(d, -0.05378383056f));
    small = hn::MulAdd(small, z, hn::Set(d, 0.1333192413f));
    small = hn::MulAdd(small, z, hn::Set(d, -0.33333298f));
    small = hn::MulAdd(hn::Mul(small, z), y, y);
    const V e = Exp2(d, hn::Mul(hn::Abs(y), hn::Set(d, static_cast<float>(-2 * kLog2E))));
    const V one = hn::Set(d, 1.0f);
    const V large = hn::CopySign(hn::Div(hn::Sub(one, e), hn::Add(one, e)), y);
    return hn::IfThenElse(hn::Lt(hn::Abs(y), hn::Set(d, 0.6f)), small, large);
  } else {
    HWY_ALIGN double lanes[HWY_MAX_BYTES / sizeof(double)];
    hn::Store(y, d, lanes);
    for (std::size_t i = 0; i < hn::Lanes(d); ++i) lanes[i] = std::tanh(lanes[i]);
    return hn::Load(d, lanes);
  }
}

}  // namespace keel::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
