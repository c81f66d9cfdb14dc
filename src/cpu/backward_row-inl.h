// What the backward kernel does to single rows between its matrix products.
#if defined(KEEL_CPU_BACKWARD_ROW_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KEEL_CPU_BACKWARD_ROW_INL_H_
#undef KEEL_CPU_BACKWARD_ROW_INL_H_
#else
#define KEEL_CPU_BACKWARD_ROW_INL_H_
#endif

#include <hwy/highway.h>

#include <cmath>

#include "cpu/backward_scratch-inl.h"
#include "cpu/exp2-inl.h"
#include "cpu/pack-inl.h"

HWY_BEFORE_NAMESPACE();
namespace keel::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <class T>
HWY_INLINE T Dot(const T* HWY_RESTRICT a, const T* HWY_RESTRICT b, std::int64_t n) {  // whole vectors, at any address
  const hn::ScalableTag<T> d;
  auto sum = hn::Zero(d);
  for (std::int64_t c = 0; c < n; c += static_cast<std::int64_t>(hn::Lanes(d))) {
    sum = hn::MulAdd(hn::LoadU(d, a + c), hn::LoadU(d, b + c), sum);
  }
  return hn::GetLane(hn::SumOfLanes(d, sum));
}

// Passes 3 and 3' of a row: s becomes p and, with kGradient, t = dp becomes ds. Both are 0 where s is −inf, whatever
// dp holds there: it belongs to a hidden key, or to a weight of 0.
template <class T, bool kGradient>
HWY_INLINE void Weigh(const RowNumbers<T>& row, Range computed, T* HWY_RESTRICT s, T* HWY_RESTRICT t) {
  const hn::ScalableTag<T> d;
  const auto n = static_cast<std::int64_t>(hn::Lanes(d));
  const auto top = hn::Set(d, row.top), norm = hn::Set(d, row.norm), delta = hn::Set(d, row.delta);
  const auto none = hn::Set(d, static_cast<T>(-INFINITY));
  for (std::int64_t x = computed.begin; x < computed.end; x += n) {
    const auto score = hn::Load(d, s + x);
    const auto hidden = hn::Eq(score, none);
    const auto p = hn::IfThenZeroElse(hidden, hn::Mul(Exp2(d, hn::Sub(score, top)), norm));
    hn::Store(p, d, s + x);
    if constexpr (kGradient) {
      const auto ds = hn::Mul(p, hn::Sub(hn::Load(d, t + x), delta));
      hn::Store(hn::IfThenZeroElse(hidden, ds), d, t + x);
    }
  }
}

// The softcap's slope, 1 − tanh²(x/c) = 4e/(1 + e)² with e = exp(−2|x|/c), which does not cancel near tanh = 1; and, if
// `bend` is given, how the slope changes with x: −2 tanh(x/c)·slope/c. Scores are in units of log 2.
template <class T>
HWY_INLINE void FindSlope(double softcap, Range computed, const T* HWY_RESTRICT s, T* HWY_RESTRICT slope,
                          T* HWY_RESTRICT bend = nullptr) {
  const hn::ScalableTag<T> d;
  const auto cap = hn::Set(d, static_cast<T>(-2 / softcap));  // s is in units of log 2 already
  const auto one = hn::Set(d, T{1}), four = hn::Set(d, T{4});
  for (std::int64_t y = computed.begin; y < computed.end; y += static_cast<std::int64_t>(hn::Lanes(d))) {
    const auto score = hn::Load(d, s + y);
    const auto e = Exp2(d, hn::Mul(hn::Abs(score), cap));
    const auto sum = hn::Add(one, e);
    const auto found = hn::Div(hn::Mul(four, e), hn::Mul(sum, sum));
    hn::Store(found, d, slope + y);
    if (bend == nullptr) continue;
    const auto tanh = hn::CopySignToAbs(hn::Div(hn::Sub(one, e), sum), score);
    hn::Store(hn::Mul(hn::Mul(cap, tanh), found), d, bend + y);
  }
}

// x ∘= y, where 0 stays 0 whatever y is: a hidden key's slope may be NaN.
template <class T>
HWY_INLINE void Multiply(T* HWY_RESTRICT x, const T* HWY_RESTRICT y, Range range) {
  const hn::ScalableTag<T> d;
  for (std::int64_t c = range.begin; c < range.end; c += static_cast<std::int64_t>(hn::Lanes(d))) {
    const auto value = hn::Load(d, x + c);
    const auto zero = hn::Eq(value, hn::Zero(d));
    hn::Store(hn::IfThenZeroElse(zero, hn::Mul(value, hn::Load(d, y + c))), d, x + c);
  }
}

}  // namespace keel::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
