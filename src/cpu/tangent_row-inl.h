// What the tangent kernel does to single rows between its matrix products.
#if defined(KEEL_CPU_TANGENT_ROW_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KEEL_CPU_TANGENT_ROW_INL_H_
#undef KEEL_CPU_TANGENT_ROW_INL_H_
#else
#define KEEL_CPU_TANGENT_ROW_INL_H_
#endif

#include <hwy/highway.h>

#include <cmath>

#include "cpu/backward_row-inl.h"
#include "cpu/backward_scratch-inl.h"
#include "cpu/exp2-inl.h"

HWY_BEFORE_NAMESPACE();
namespace keel::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// What a row has between its two passes, μ and tδ.
template <class T>
struct RowMoves {
  T mu, delta;
};

// A row's arrays over a block of keys. p is −0 where a key is hidden, as no weight is: 0 may be one.
template <class T>
struct TangentRow {
  T* p;                                 // scores, then weights, then what multiplies do in tdv
  T* ts;                                // the scores' tangents
  T *slope = nullptr, *bend = nullptr;  // of the softcap, if there is one: its slope, and how much that moves
  const T* tbias = nullptr;             // the bias's tangents, if it moves
  const T* kept = nullptr;              // dropout's multipliers, if there is any
  T *w = nullptr, *wt = nullptr;        // what multiplies tv and v in to; w only with dropout, else it is p
};

template <class D, class V = hn::Vec<D>>
HWY_INLINE auto IsHidden(D d, V p) {
  const hn::RebindToUnsigned<D> du;
  return hn::RebindMask(d, hn::Eq(hn::BitCast(du, p), hn::BitCast(du, hn::Set(d, hn::TFromD<D>(-0.0)))));
}

// The first pass: p = 2^(s − top)·norm, ts from what q·k moves by in units of log 2, and the weights of to. Returns
// Σ p·ts.
template <class T>
HWY_INLINE T WeighMoves(const RowNumbers<T>& numbers, Range computed, const TangentRow<T>& row) {
  const hn::ScalableTag<T> d;
  const auto n = static_cast<std::int64_t>(hn::Lanes(d));
  const auto top = hn::Set(d, numbers.top), norm = hn::Set(d, numbers.norm), ln2 = hn::Set(d, static_cast<T>(kLn2));
  const auto none = hn::Set(d, static_cast<T>(-INFINITY)), hidden_weight = hn::Set(d, T(-0.0));
  auto sum = hn::Zero(d);
  for (std::int64_t x = computed.begin; x < computed.end; x += n) {
    const auto score = hn::Load(d, row.p + x);
    const auto hidden = hn::Eq(score, none);
    const auto p = hn::IfThenElse(hidden, hidden_weight, hn::Mul(Exp2(d, hn::Sub(score, top)), norm));
    auto t = hn::Mul(hn::Load(d, row.ts + x), ln2);
    if (row.slope != nullptr) {
      const auto slope = hn::IfThenZeroElse(hidden, hn::Load(d, row.slope + x));
      hn::Store(slope, d, row.slope + x);
      hn::Store(hn::IfThenZeroElse(hidden, hn::Mul(hn::Load(d, row.bend + x), t)), d, row.bend + x);
      t = hn::Mul(slope, t);
    }
    if (row.tbias != nullptr) t = hn::Add(t, hn::Load(d, row.tbias + x));
    t = hn::IfThenZeroElse(hidden, t);
    auto pt = hn::Mul(p, t);
    sum = hn::Add(sum, pt);
    hn::Store(p, d, row.p + x);
    hn::Store(t, d, row.ts + x);
    if (row.kept != nullptr) {
      const auto kept = hn::Load(d, row.kept + x);
      hn::Store(hn::Mul(p, kept), d, row.w + x);
      pt = hn::Mul(pt, kept);
    }
    hn::Store(pt, d, row.wt + x);
  }
  return hn::GetLane(hn::SumOfLanes(d, sum));
}

// The second pass: from dp in `dp` and what it moves by in `tdp`, ds and tds in their places, and in p what multiplies
// do in tdv.
template <class T>
HWY_INLINE void WeighGradients(const RowNumbers<T>& numbers, const RowMoves<T>& moves, Range computed,
                               const TangentRow<T>& row, T* HWY_RESTRICT dp, T* HWY_RESTRICT tdp) {
  const hn::ScalableTag<T> d;
  const auto n = static_cast<std::int64_t>(hn::Lanes(d));
  const auto delta = hn::Set(d, numbers.delta), mu = hn::Set(d, moves.mu), tdelta = hn::Set(d, moves.delta);
  for (std::int64_t x = computed.begin; x < computed.end; x += n) {
    const auto p = hn::Load(d, row.p + x);
    const auto hidden = IsHidden(d, p);
    const auto shift = hn::Sub(hn::Load(d, row.ts + x), mu);
    auto tw = hn::Mul(p, shift), gradient = hn::Load(d, dp + x), moved = hn::Load(d, tdp + x);
    if (row.kept != nullptr) {
      const auto kept = hn::Load(d, row.kept + x);
      tw = hn::Mul(tw, kept);
      gradient = hn::Mul(gradient, kept);
      moved = hn::Mul(moved, kept);
    }
    const auto ds = hn::Mul(p, hn::Sub(gradient, delta));
    const auto tds = hn::MulAdd(shift, ds, hn::Mul(p, hn::Sub(moved, tdelta)));
    hn::Store(hn::IfThenZeroElse(hidden, tw), d, row.p + x);
    hn::Store(hn::IfThenZeroElse(hidden, ds), d, dp + x);
    hn::Store(hn::IfThenZeroElse(hidden, tds), d, tdp + x);
  }
}

// Back through the softcap: tds = slope·tds + bend·ds, ds = slope·ds.
template <class T>
HWY_INLINE void Uncap(Range computed, const TangentRow<T>& row, T* HWY_RESTRICT ds, T* HWY_RESTRICT tds) {
  const hn::ScalableTag<T> d;
  for (std::int64_t x = computed.begin; x < computed.end; x += static_cast<std::int64_t>(hn::Lanes(d))) {
    const auto slope = hn::Load(d, row.slope + x), gradient = hn::Load(d, ds + x);
    const auto bent = hn::Mul(hn::Load(d, row.bend + x), gradient);
    hn::Store(hn::MulAdd(slope, hn::Load(d, tds + x), bent), d, tds + x);
    hn::Store(hn::Mul(slope, gradient), d, ds + x);
  }
}

}  // namespace keel::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
