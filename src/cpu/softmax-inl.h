// The online softmax: one row's running state, a block of scores joining it, two states joining.
#if defined(KEEL_CPU_SOFTMAX_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KEEL_CPU_SOFTMAX_INL_H_
#undef KEEL_CPU_SOFTMAX_INL_H_
#else
#define KEEL_CPU_SOFTMAX_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cmath>

#include "core/masked_score.h"
#include "cpu/exp2-inl.h"
#include "cpu/gemm-inl.h"
#include "cpu/mask-inl.h"
#include "cpu/products-inl.h"

HWY_BEFORE_NAMESPACE();
namespace keel::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// A row over the keys so far, scores in units of log 2:
//   max = max s    l = Σ 2^(s−m)    w = Σ 2^(s−m)·(s−m)    visible = the number of keys that masks leave
// relative to a reference m ≥ max; and, over those with scores above kMaskedScore, their number, mean and
// squares = Σ (s − mean)². What is not requested stays 0.
template <class T>
struct RowState {
  T m, max, l, w;
  std::int64_t visible;
  double counted, mean, squares;
};

// How far above its largest score a row's reference is set. While the largest rises no further, no sum moves to another
// reference: for most rows that is all the time, so that it can be predicted, and weights never exceed 1. Where
// products take most of the time anyway, 0 keeps differences from the reference exact.
template <class P>
constexpr typename P::T kHeadroom = P::kLateScale ? 4 : 0;

template <class T>
constexpr T kLowScore = static_cast<T>(kMaskedScore* kLog2E);

template <class T>
HWY_INLINE RowState<T> EmptyState() {
  return {static_cast<T>(-INFINITY), static_cast<T>(-INFINITY), 0, 0, 0, 0, 0, 0};
}

// Scores of which the number, mean and squares are known join those of the state.
template <class T>
HWY_INLINE void JoinMoments(double counted, double mean, double squares, RowState<T>& state) {
  if (counted == 0) return;
  const double before = state.counted, total = before + counted, delta = mean - state.mean;
  state.counted = total;
  if (before == 0) {
    state.mean = mean;
    state.squares = squares;
    return;
  }
  if (!std::isfinite(delta)) {  // an infinite score: the mean is infinite or NaN, and there is no spread
    state.mean = state.mean * (before / total) + mean * (counted / total);
    state.squares = NAN;
    return;
  }
  state.squares += squares + delta * delta * (before * counted / total);
  state.mean += delta * (counted / total);
}

// Moves a state's reference from its m to `m`, never lower; returns the factor that its output must take too. Keys that
// have no weight next to `m` are dropped: from the lowest float to an ordinary score, l·(m − m') overflows.
template <class T>
HWY_INLINE T Raise(RowState<T>& state, T m) {
  if (state.m == m) return 1;
  const T factor = state.m == static_cast<T>(-INFINITY) ? T{0} : Exp2Scalar(state.m - m);
  state.w = factor == 0 ? T{0} : factor * (state.w + state.l * (state.m - m));
  state.l *= factor;
  state.m = m;
  return factor;
}

template <class T>
HWY_NOINLINE bool HasNaN(const T* s, Range computed) {
  return std::any_of(s + computed.begin, s + computed.end, [](T x) { return x != x; });
}

// The largest lane, −inf where all are: Highway's emulation begins with the lowest float.
template <class D, class V = hn::Vec<D>>
HWY_INLINE hn::TFromD<D> LargestLane(D d, V v) {
#if HWY_TARGET == HWY_EMU128
  hn::TFromD<D> lanes[hn::MaxLanes(D())];
  hn::StoreU(v, d, lanes);
  return *std::max_element(std::begin(lanes), std::end(lanes));
#else
  return hn::GetLane(hn::MaxOfLanes(d, v));
#endif
}

// The largest score; a NaN among them may be missed.
template <class T>
HWY_INLINE T MaxOfBlock(const T* HWY_RESTRICT s, Range computed) {
  const hn::ScalableTag<T> d;
  const auto n = static_cast<std::int64_t>(hn::Lanes(d));
  auto m0 = hn::Load(d, s + computed.begin), m1 = hn::Load(d, s + computed.begin + n);
  std::int64_t x = computed.begin + 2 * n;
  for (; x < computed.end; x += 2 * n) {
    m0 = hn::Max(m0, hn::Load(d, s + x));
    m1 = hn::Max(m1, hn::Load(d, s + x + n));
  }
  return LargestLane(d, hn::Max(m0, m1));
}

// The same, where scores outside `seen` become −inf first. A short block is read once: with AVX-512 on a Zen 4, reading
// what HideOutside() has just written took 60 cycles per row.
template <class T>
HWY_INLINE T HideAndMax(Range computed, Range seen, T* HWY_RESTRICT s) {
  const hn::ScalableTag<T> d;
  const auto n = static_cast<std::int64_t>(hn::Lanes(d));
  if (computed.end - computed.begin > 4 * n) {
    HideOutside(computed, seen, s);
    return MaxOfBlock(s, computed);
  }
  const auto hidden = hn::Set(d, static_cast<T>(-INFINITY)), zero = hn::Zero(d);
  const auto hide = [&](std::int64_t x) {
    const auto after_begin = hn::Ge(hn::Iota(d, static_cast<T>(x - seen.begin)), zero);
    const auto before_end = hn::Lt(hn::Iota(d, static_cast<T>(x - seen.end)), zero);
    const auto v = hn::IfThenElse(hn::And(after_begin, before_end), hn::Load(d, s + x), hidden);
    hn::Store(v, d, s + x);
    return v;
  };
  auto m0 = hidden, m1 = hidden;
  for (std::int64_t x = computed.begin; x < computed.end; x += 2 * n) {
    m0 = hn::Max(m0, hide(x));
    m1 = hn::Max(m1, hide(x + n));
  }
  return LargestLane(d, hn::Max(m0, m1));
}

// Of so many scores, before they are scaled, the sum and that of their squares.
template <class T>
struct ScoreSums {
  std::int64_t counted = 0;  // 0 if they are not known
  T sum = 0, squares = 0;
};

// The largest score, and the sums of all: whole rounds of MaxOfBlock(), of which nothing is hidden.
template <class T>
HWY_INLINE T MaxAndSums(const T* HWY_RESTRICT s, Range seen, ScoreSums<T>& sums) {
  const hn::ScalableTag<T> d;
  const auto n = static_cast<std::int64_t>(hn::Lanes(d));
  auto m0 = hn::Load(d, s + seen.begin), m1 = hn::Load(d, s + seen.begin + n);
  auto sum0 = hn::Zero(d), sum1 = sum0, squares0 = sum0, squares1 = sum0;
  for (std::int64_t x = seen.begin; x < seen.end; x += 2 * n) {
    const auto v0 = hn::Load(d, s + x), v1 = hn::Load(d, s + x + n);
    m0 = hn::Max(m0, v0);
    m1 = hn::Max(m1, v1);
    sum0 = hn::Add(sum0, v0);
    sum1 = hn::Add(sum1, v1);
    squares0 = hn::MulAdd(v0, v0, squares0);
    squares1 = hn::MulAdd(v1, v1, squares1);
  }
  sums = {seen.end - seen.begin, hn::GetLane(hn::SumOfLanes(d, hn::Add(sum0, sum1))),
          hn::GetLane(hn::SumOfLanes(d, hn::Add(squares0, squares1)))};
  return LargestLane(d, hn::Max(m0, m1));
}

// A row's scores of a block, all to be multiplied by `scale`, and the largest of them so multiplied.
template <class T>
struct BlockOfScores {
  Range computed;
  T top;
  T scale;  // 1 unless P::kLateScale leaves the scores to be scaled
  ScoreSums<T> sums{};
};

// The same sums in float64, for scores whose squares float cannot hold.
template <class T>
HWY_NOINLINE void AddHugeMoments(const T* s, const BlockOfScores<T>& block, double counted, RowState<T>& state) {
  const double from = block.top;
  double mean = 0, squares = 0;
  for (std::int64_t x = block.computed.begin; x < block.computed.end; ++x) {
    const T score = s[x] * block.scale;
    if (!(score <= kLowScore<T>)) mean += (score - from) / counted;
  }
  for (std::int64_t x = block.computed.begin; x < block.computed.end; ++x) {
    const T score = s[x] * block.scale;
    const double delta = score - from - mean;
    if (!(score <= kLowScore<T>)) squares += delta * delta;
  }
  JoinMoments(counted, from + mean, squares, state);
}

// AddMoments() in two passes, where one would lose what scores differ by: relative to the largest, then to their mean.
template <class T>
HWY_NOINLINE void AddMomentsTwice(const T* HWY_RESTRICT s, const BlockOfScores<T>& block, double counted,
                                  RowState<T>& state) {
  const hn::ScalableTag<T> d;
  const auto n = static_cast<std::int64_t>(hn::Lanes(d));
  const auto low = hn::Set(d, kLowScore<T>), from = hn::Set(d, block.top), scale = hn::Set(d, block.scale);
  auto sum = hn::Zero(d), squares = hn::Zero(d), off = hn::Zero(d);
  if (block.top == static_cast<T>(INFINITY)) {
    return JoinMoments(counted, HasNaN(s, block.computed) ? NAN : INFINITY, NAN, state);
  }
  for (std::int64_t x = block.computed.begin; x < block.computed.end; x += n) {
    const auto v = hn::Mul(hn::Load(d, s + x), scale);
    sum = hn::Add(sum, hn::IfThenZeroElse(hn::Le(v, low), hn::Sub(v, from)));
  }
  const T mean = hn::GetLane(hn::SumOfLanes(d, sum)) / static_cast<T>(counted);
  for (std::int64_t x = block.computed.begin; x < block.computed.end; x += n) {
    const auto v = hn::Mul(hn::Load(d, s + x), scale);
    const auto delta = hn::IfThenZeroElse(hn::Le(v, low), hn::Sub(hn::Sub(v, from), hn::Set(d, mean)));
    squares = hn::MulAdd(delta, delta, squares);
    off = hn::Add(off, delta);  // 0 except for the rounding of mean, which it corrects
  }
  const double all_squares = hn::GetLane(hn::SumOfLanes(d, squares));
  if (!std::isfinite(all_squares)) return AddHugeMoments(s, block, counted, state);
  const double shift = static_cast<double>(hn::GetLane(hn::SumOfLanes(d, off))) / counted;
  JoinMoments(counted, static_cast<double>(block.top) + static_cast<double>(mean) + shift,
              all_squares - counted * shift * shift, state);
}

// The number, mean and spread of a block's scores above kMaskedScore, relative to the mean of those before or, if there
// are none, to 0. Where that is so far from their own mean that the difference of two sums would lose more than two
// bits, in two passes.
template <bool kLateScale, class T>
HWY_INLINE void AddMoments(const T* HWY_RESTRICT s, const BlockOfScores<T>& block, RowState<T>& state) {
  const hn::ScalableTag<T> d;
  const auto n = static_cast<std::int64_t>(hn::Lanes(d));
  const T start = state.counted > 0 ? static_cast<T>(state.mean) : T{0};
  const T near = std::abs(start) <= T{0x1p32} ? start : T{0};  // so that it is nothing beside kLowScore
  const auto low = hn::Set(d, kLateScale ? kLowScore<T> - near : kLowScore<T>), from = hn::Set(d, near);
  const auto one = hn::Set(d, T{1}), scale = hn::Set(d, block.scale);
  auto sum0 = hn::Zero(d), sum1 = sum0, squares0 = sum0, squares1 = sum0, number0 = sum0, number1 = sum0;
  const auto add = [&](std::int64_t x, auto& number, auto& sum, auto& squares) {
    const auto v = hn::Load(d, s + x);
    const auto y = kLateScale ? hn::MulSub(v, scale, from) : hn::Sub(v, from);
    const auto left_out = hn::Le(kLateScale ? y : v, low);
    const auto counted = hn::IfThenZeroElse(left_out, y);
    number = hn::Add(number, hn::IfThenZeroElse(left_out, one));
    sum = hn::Add(sum, counted);
    squares = hn::MulAdd(counted, counted, squares);
  };
  for (std::int64_t x = block.computed.begin; x < block.computed.end; x += 2 * n) {
    add(x, number0, sum0, squares0);
    add(x + n, number1, sum1, squares1);
  }
  const double counted = hn::GetLane(hn::SumOfLanes(d, hn::Add(number0, number1)));
  const double sum = hn::GetLane(hn::SumOfLanes(d, hn::Add(sum0, sum1)));
  const double squares = hn::GetLane(hn::SumOfLanes(d, hn::Add(squares0, squares1)));
  const double mean = sum / counted, spread = squares - sum * mean;
  if (!(4 * spread >= squares && squares < 0x1p126)) return AddMomentsTwice(s, block, counted, state);
  JoinMoments(counted, static_cast<double>(near) + mean, spread, state);
}

// The same by sums that are relative to 0, if they lose no more.
template <class T>
HWY_INLINE bool JoinSums(const BlockOfScores<T>& block, RowState<T>& state) {
  const double scale = block.scale, counted = static_cast<double>(block.sums.counted);
  const double sum = block.sums.sum * scale, squares = block.sums.squares * scale * scale;
  const double mean = sum / counted, spread = squares - sum * mean;
  if (!(4 * spread >= squares && squares < 0x1p126)) return false;
  JoinMoments(counted, mean, spread, state);
  return true;
}

// A block of scores joins the row; s becomes the weights 2^(s − m), as P stores them. Returns the factor for the output
// so far: 1 unless m rose from what other keys made it.
// Sums run over kTileVectors accumulators chosen by a key's position in its panel, so that panels without visible keys,
// computed or not, change no bit.
// While it works, it lets the queue go on.
template <class P, bool kEntropy, bool kMoments, class Queue, class T = typename P::T>
HWY_INLINE T JoinBlock(T* HWY_RESTRICT s, const BlockOfScores<T>& block, Queue& queue, RowState<T>& state) {
  const hn::ScalableTag<T> d;
  using V = hn::Vec<decltype(d)>;
  const auto n = static_cast<std::int64_t>(hn::Lanes(d));
  const Range computed = block.computed;
  T top = block.top;
  if (top == static_cast<T>(-INFINITY) && HasNaN(s, computed)) top = static_cast<T>(NAN);
  if (top == static_cast<T>(-INFINITY)) {  // nothing visible here, or visible scores of −inf: no weight either way
    for (std::int64_t x = computed.begin; x < computed.end; x += 2 * n) {
      P::StoreWeights(d, hn::Zero(d), hn::Zero(d), s, x);
    }
    return 1;
  }
  if constexpr (kMoments) {
    const bool known = block.sums.counted > 0 && JoinSums(block, state);
    if (!known && (!(top <= kLowScore<T>) || HasNaN(s, computed))) {
      AddMoments<P::kLateScale>(s, {computed, top, block.scale}, state);
    }
  }
  T factor = 1;
  if (state.m == static_cast<T>(-INFINITY)) {  // nothing so far: the output is 0
    state.m = top + kHeadroom<P>;
    state.max = top;
  } else {
    if (!(top <= state.m)) factor = Raise(state, top + kHeadroom<P>);  // a NaN raises too, and is sticky
    state.max = top <= state.max ? state.max : top;
  }
  const V m = hn::Set(d, state.m);
  [[maybe_unused]] const V scale = hn::Set(d, block.scale);
  V l0 = hn::Zero(d), l1 = l0, l2 = l0, l3 = l0, w0 = l0, w1 = l0;
  const auto weigh = [&](std::int64_t at, V& l, V& w) {
    V score = hn::Load(d, s + at);
    score = P::kLateScale ? hn::MulSub(score, scale, m) : hn::Sub(score, m);
    const V p = Exp2(d, score);
    l = hn::Add(l, p);
    if constexpr (kEntropy) w = hn::MulAdd(p, AtLeast(d, kLowestExponent<T>, score), w);
    return p;
  };
  std::int64_t x = computed.begin;
  if constexpr (kTileVectors == 4) {
    for (; x + 4 * n <= computed.end; x += 4 * n) {
      const V p0 = weigh(x, l0, w0), p1 = weigh(x + n, l1, w1);
      const V p2 = weigh(x + 2 * n, l2, w0), p3 = weigh(x + 3 * n, l3, w1);
      P::StoreWeights(d, p0, p1, s, x);
      P::StoreWeights(d, p2, p3, s, x + 2 * n);
      queue.Tick();
    }
  }
  for (; x < computed.end; x += 2 * n) {
    const V p0 = weigh(x, l0, w0), p1 = weigh(x + n, l1, w1);
    P::StoreWeights(d, p0, p1, s, x);
  }
  state.l += hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(l0, l1), hn::Add(l2, l3))));
  if constexpr (kEntropy) state.w += hn::GetLane(hn::SumOfLanes(d, hn::Add(w0, w1)));
  return factor;
}

// A sink, in units of log 2, joins the row's sum; returns the factor for its output.
template <class T>
HWY_INLINE T JoinSink(T sink, RowState<T>& state) {
  const T factor = sink <= state.m ? T{1} : Raise(state, sink);
  const T p = sink == static_cast<T>(-INFINITY) ? T{0} : Exp2Scalar(sink - state.m);
  state.l += p;
  if (p > 0) state.w += p * (sink - state.m);
  return factor;
}

// `other`, over later keys, joins `state`: state.o and other.o must take the two factors.
template <class T>
HWY_INLINE void JoinStates(RowState<T>& state, RowState<T> other, T& state_factor, T& other_factor) {
  const T top = other.m <= state.m || other.l == 0 ? state.m : other.m;
  if (other.l != 0 && !(other.max <= state.max)) state.max = other.max;
  state_factor = Raise(state, top);
  other_factor = other.l == 0 ? T{0} : Raise(other, top);
  state.l += other.l;
  state.w += other.w;
  state.visible += other.visible;
  JoinMoments(other.counted, other.mean, other.squares, state);
}

}  // namespace keel::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
