// What happens to scores between q·k and the softmax: softcap, bias, ALiBi and masks. Scores are in units of log 2,
// s·log₂e, so that the softmax is a power of two.
#if defined(KEEL_CPU_MASK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KEEL_CPU_MASK_INL_H_
#undef KEEL_CPU_MASK_INL_H_
#else
#define KEEL_CPU_MASK_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "cpu/exp2-inl.h"
#include "cpu/forward.h"
#include "cpu/pack-inl.h"
#include "cpu/relative_table.h"
#include "cpu/tiles-inl.h"

HWY_BEFORE_NAMESPACE();
namespace keel::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// The scale of query i of head g of the group.
HWY_INLINE double ScaleOf(const Call& call, const ForwardHead& head, std::int64_t g, std::int64_t i) {
  if (head.scale.data == nullptr) return call.scale;
  return LoadOne<double>(call.scale_tensor.dtype, head.scale.data,
                         g * head.scale.head_stride + i * head.scale.row_stride);
}

// The sink of head g of the group, in units of log 2.
template <class T>
HWY_INLINE T SinkOf(const Call& call, const ForwardHead& head, std::int64_t g) {
  return LoadOne<T>(call.sinks.dtype, head.sinks.data, g * head.sinks.head_stride) * static_cast<T>(kLog2E);
}

// The keys that lengths, causal mask, window and a mask shared by all queries leave to query i, from the first to the
// last; the range may be empty, with begin > end. Causal masks and windows need nothing else: a tile of rows and keys
// is skipped if the ranges of its rows miss it, and needs no mask if they all cover it. Branch-free, since it is
// computed for every row.
struct KeysInReach {
  HWY_INLINE KeysInReach(const Call& call, const ForwardHead& head)
      : left(Sequences::bounded(call.sequences.window_left)),
        right(Sequences::bounded(call.sequences.window_right)),
        begin(head.k_begin),
        end(std::min(head.k_end, head.k_len)),
        diagonal(head.diagonal),
        queries(head.q_len) {}
  HWY_INLINE Range operator()(std::int64_t i) const {
    const std::int64_t at = i + diagonal;
    return {std::max(at - left, begin), i < queries ? std::min(at + right + 1, end) : 0};
  }

  std::int64_t left, right, begin, end, diagonal, queries;
};

// The same, with a block mask's lists, for query i of head g; {0, 0} if it sees nothing.
HWY_INLINE Range VisibleKeys(const KeysInReach& in_reach, const ForwardHead& head, std::int64_t g, std::int64_t i) {
  Range range = in_reach(i);
  if (head.tiles && !range.empty()) range = Clip(range, ListedKeys(head, g, i));
  const bool empty = range.empty();
  return {empty ? 0 : range.begin, empty ? 0 : range.end};
}

// VisibleKeys() of rows [0, rows), counted from `place`. Returns what lies from the first to the last key that any of
// them sees, {0, 0} if there is none.
HWY_INLINE Range FindVisible(const Call& call, const ForwardHead& head, RowPlace place, std::int64_t rows,
                             Range* HWY_RESTRICT keys) {
  const KeysInReach in_reach(call, head);
  Range all = {INT64_MAX, 0};
  for (std::int64_t r = 0; r < rows; ++r, ++place) {
    const Range range = VisibleKeys(in_reach, head, place.g, place.i);
    keys[r] = range;
    all = {std::min(all.begin, range.empty() ? INT64_MAX : range.begin), std::max(all.end, range.end)};
  }
  return all.empty() ? Range{0, 0} : all;
}

// Whether every row that is not padding has the same VisibleKeys(): those of the head.
HWY_INLINE bool SeesAllKeys(const Call& call, const ForwardHead& head) {
  return call.sequences.window_left == INT64_MAX && call.sequences.window_right == INT64_MAX && !head.tiles;
}

// The keys of `block` that any of the rows sees, {0, 0} if there are none.
HWY_INLINE Range NeededKeys(const Range* keys, std::int64_t rows, Range block) {
  Range needed = {INT64_MAX, 0};
  for (std::int64_t x = 0; x < rows; ++x) {
    const Range seen = Clip(keys[x], block);
    if (!seen.empty()) needed = {std::min(needed.begin, seen.begin), std::max(needed.end, seen.end)};
  }
  return needed.empty() ? Range{0, 0} : needed;
}

// A block of one row's scores: s[x] belongs to key first + x, for x in `computed` (pairs of vectors), of which `seen`
// is what VisibleKeys() and a block mask leave.
struct RowBlock {
  std::int64_t g = 0, i = 0;  // head of the group, query
  std::int64_t first = 0;
  Range computed, seen;
  bool holes = false;  // a block mask hides some of `seen`
};

// What a row that sees `keys` of the whole sequence sees of a block, counted from key `first` on.
HWY_INLINE Range SeenOf(Range keys, Range block, std::int64_t first, Range computed) {
  const Range seen = Clip(keys, block);
  return seen.empty() ? Range{computed.begin, computed.begin} : Range{seen.begin - first, seen.end - first};
}

// Scores outside `seen` become −inf.
template <class T>
HWY_INLINE void HideOutside(Range computed, Range seen, T* HWY_RESTRICT s) {
  const hn::ScalableTag<T> d;
  const auto n = static_cast<std::int64_t>(hn::Lanes(d));
  const auto hidden = hn::Set(d, static_cast<T>(-INFINITY));
  for (std::int64_t x = computed.begin; x < seen.begin; x += n) {
    const auto keep = hn::Ge(hn::Iota(d, static_cast<T>(x - seen.begin)), hn::Zero(d));
    hn::Store(hn::IfThenElse(keep, hn::Load(d, s + x), hidden), d, s + x);
  }
  for (std::int64_t x = std::max(seen.end / n * n, computed.begin); x < computed.end; x += n) {
    const auto keep = hn::Lt(hn::Iota(d, static_cast<T>(x - seen.end)), hn::Zero(d));
    hn::Store(hn::IfThenElse(keep, hn::Load(d, s + x), hidden), d, s + x);
  }
}

HWY_INLINE bool HasDenseTerms(const Call& call, const ForwardHead& head) {
  return call.softcap > 0 || head.bias.data != nullptr || head.alibi.data != nullptr || head.mask.data != nullptr ||
         head.relative.data != nullptr;
}

// Room for one row's bias and mask.
template <class T>
struct DenseScratch {
  T* bias = nullptr;  // key_block of each
  std::uint8_t* mask = nullptr;
};

// Prefetches the bias and mask of the keys of `needed` in rows [r, r + rows), a few lines before each panel
// from `y` on is computed: rows are far apart, and each would begin with a wait for memory. A prefetch may be dropped
// if the page is not in the TLB, so one byte per row is actually read, for all rows together. `needed` and `y` count
// from key `first` on.
HWY_NOINLINE inline void PrefetchDenseTerms(const Call& call, const ForwardHead& head, std::int64_t r,
                                            std::int64_t rows, Range needed, std::int64_t first, std::int64_t y) {
  constexpr std::int64_t kStep = 64, kLine = 64;
  const bool begins = y <= needed.begin;
  if (!begins && y % kStep != 0) return;
  const Range keys = Clip(needed, {y, y + kStep});
  const auto prefetch = [&](const Rows& from, std::int64_t item) {
    if (from.data == nullptr || from.column_stride != 1) return;
    for (std::int64_t x = 0, g = r % call.group, i = r / call.group; x < rows; ++x) {
      const auto* const row =
          static_cast<const std::uint8_t*>(from.data) + (g * from.head_stride + i * from.row_stride + first) * item;
      if (begins) static_cast<void>(*static_cast<const volatile std::uint8_t*>(row + keys.begin * item));
      for (std::int64_t at = keys.begin * item; at < keys.end * item; at += kLine) PrefetchToL2(row + at);
      if (++g == call.group) g = 0, ++i;
    }
  };
  prefetch(head.bias, size_of(call.bias.dtype));
  prefetch(head.mask, 1);
}

// Lanes of T whose bytes are not 0.
template <class D>
HWY_INLINE hn::Mask<D> LoadByteMask(D d, const std::uint8_t* bytes) {
  const hn::Rebind<std::uint8_t, D> du8;
  const hn::Rebind<std::uint32_t, D> du32;
  const hn::RebindToUnsigned<D> du;
  const auto words = hn::PromoteTo(du32, hn::LoadU(du8, bytes));
  if constexpr (sizeof(hn::TFromD<D>) == 4) {
    return hn::RebindMask(d, hn::Ne(words, hn::Zero(du)));
  } else {
    return hn::RebindMask(d, hn::Ne(hn::PromoteTo(du, words), hn::Zero(du)));
  }
}

// Lanes of a that differ from b, including NaN, which Ne() leaves out on some targets.
template <class V>
HWY_INLINE auto IsNot(V a, V b) {
  return hn::Not(hn::Eq(a, b));
}

// v + bias·log₂e, where a bias that is finite stays so: the lowest float, a mask in all but name, must not become −inf.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V PlusBias(D d, V v, V bias) {
  using T = hn::TFromD<D>;
  const V infinity = hn::Set(d, static_cast<T>(INFINITY)), log2e = hn::Set(d, static_cast<T>(kLog2E));
  const auto over = hn::And(hn::Eq(hn::Abs(hn::Mul(bias, log2e)), infinity), hn::Ne(hn::Abs(bias), infinity));
  const V most = hn::CopySign(hn::Set(d, std::numeric_limits<T>::max()), bias);
  return hn::IfThenElse(over, hn::Add(v, most), hn::MulAdd(bias, log2e, v));
}

// The bias, if there is nothing else to do, on vectors of visible keys. Returns how many it leaves visible. Most
// vectors have neither −inf nor anything that overflows times log₂e, and are recognised by one comparison.
template <class T, class S>
HWY_INLINE std::int64_t AddBias(Range keys, const S* HWY_RESTRICT biases, T* HWY_RESTRICT s) {
  const hn::ScalableTag<T> d;
  const auto n = static_cast<std::int64_t>(hn::Lanes(d));
  const auto hidden = hn::Set(d, static_cast<T>(-INFINITY)), log2e = hn::Set(d, static_cast<T>(kLog2E));
  const auto safe = hn::Set(d, std::numeric_limits<T>::max() / 2);
  std::int64_t visible = 0;
  for (std::int64_t x = keys.begin; x < keys.end; x += n) {
    const auto v = hn::Load(d, s + x), bias = LoadAs(d, biases + x);
    if (HWY_LIKELY(hn::AllTrue(d, hn::Le(hn::Abs(bias), safe)))) {
      hn::Store(hn::MulAdd(bias, log2e, v), d, s + x);
      visible += n;
    } else {
      const auto keep = IsNot(bias, hidden);
      hn::Store(hn::IfThenElse(keep, PlusBias(d, v, bias), hidden), d, s + x);
      visible += static_cast<std::int64_t>(hn::CountTrue(d, keep));
    }
  }
  return visible;
}

// Likewise for the boolean mask.
template <class T>
HWY_INLINE std::int64_t ApplyMask(Range keys, const std::uint8_t* HWY_RESTRICT bytes, T* HWY_RESTRICT s) {
  const hn::ScalableTag<T> d;
  const auto hidden = hn::Set(d, static_cast<T>(-INFINITY));
  std::int64_t visible = 0;
  for (std::int64_t x = keys.begin; x < keys.end; x += static_cast<std::int64_t>(hn::Lanes(d))) {
    const auto keep = LoadByteMask(d, bytes + x);
    hn::Store(hn::IfThenElse(keep, hn::Load(d, s + x), hidden), d, s + x);
    visible += static_cast<std::int64_t>(hn::CountTrue(d, keep));
  }
  return visible;
}

// The biases by distance of a row's block, s[x] having that at x.
template <class T>
HWY_INLINE const T* RelativeRow(const Call& call, const ForwardHead& head, const RowBlock& row) {
  return static_cast<const T*>(head.relative.data) + row.g * head.relative.head_stride +
         relative_start(row.first - row.i - head.diagonal, call.radius, head.relative_pad);
}

// Softcap, biases, ALiBi and every mask on `keys`, whole vectors of a row's block. Returns how many keys stay visible.
template <class T>
HWY_NOINLINE std::int64_t ApplyAllTerms(const Call& call, const ForwardHead& head, const RowBlock& row, Range keys,
                                        const DenseScratch<T>& scratch, T* HWY_RESTRICT s) {
  const hn::ScalableTag<T> d;
  const auto n = static_cast<std::int64_t>(hn::Lanes(d));
  const Range seen = Clip(row.seen, keys);
  const bool capped = call.softcap > 0, biased = head.bias.data != nullptr;
  const bool masked = head.mask.data != nullptr || row.holes, related = head.relative.data != nullptr;
  const auto place = [&](const Rows& from) {
    return row.g * from.head_stride + row.i * from.row_stride + (row.first + seen.begin) * from.column_stride;
  };
  if (biased && !seen.empty()) {
    LoadRow<T>(call.bias.dtype, head.bias.data, place(head.bias), head.bias.column_stride, seen.end - seen.begin, T{1},
               scratch.bias + seen.begin);
  }
  if (row.holes && !seen.empty()) FillVisible(head, row.g, row.i, row.first, seen, scratch.mask);
  if (head.mask.data != nullptr && !seen.empty()) {
    const auto* const from = static_cast<const std::uint8_t*>(head.mask.data) + place(head.mask);
    std::uint8_t* const to = scratch.mask + seen.begin;
    for (std::int64_t x = 0; x < seen.end - seen.begin; ++x) {
      const std::uint8_t visible = from[x * head.mask.column_stride];
      to[x] = row.holes && to[x] == 0 ? std::uint8_t{0} : visible;
    }
  }
  const T* const relative = related ? RelativeRow<T>(call, head, row) : nullptr;
  const auto cap_in = hn::Set(d, static_cast<T>(capped ? kLn2 / call.softcap : 0));
  const auto cap_out = hn::Set(d, static_cast<T>(call.softcap * kLog2E));
  const bool sloped = head.alibi.data != nullptr;
  const T slope =
      sloped ? LoadOne<T>(call.alibi.dtype, head.alibi.data, row.g * head.alibi.head_stride) * static_cast<T>(kLog2E)
             : T{0};
  const std::int64_t diagonal = row.i + head.diagonal - row.first;  // counted from the block's first key
  const auto hidden = hn::Set(d, static_cast<T>(-INFINITY));
  const auto begin = hn::Set(d, static_cast<T>(seen.begin)), end = hn::Set(d, static_cast<T>(seen.end));
  std::int64_t visible = 0;
  for (std::int64_t x = keys.begin; x < keys.end; x += n) {
    auto v = hn::Load(d, s + x);
    const auto at = hn::Iota(d, static_cast<T>(x));
    auto keep = hn::And(hn::Ge(at, begin), hn::Lt(at, end));
    if (capped) v = hn::Mul(cap_out, Tanh(d, hn::Mul(v, cap_in)));
    if (biased) {  // what lies outside `seen` is never used
      const auto bias = hn::Load(d, scratch.bias + x);
      v = PlusBias(d, v, bias);
      keep = hn::And(keep, IsNot(bias, hidden));
    }
    if (related) {
      const auto bias = hn::LoadU(d, relative + x);
      v = PlusBias(d, v, bias);
      keep = hn::And(keep, IsNot(bias, hidden));
    }
    if (sloped) {
      const auto distance = hn::Abs(hn::Sub(hn::Set(d, static_cast<T>(diagonal - x)), hn::Iota(d, T{0})));
      v = hn::NegMulAdd(hn::Set(d, slope), distance, v);
    }
    if (masked) keep = hn::And(keep, LoadByteMask(d, scratch.mask + x));
    visible += static_cast<std::int64_t>(hn::CountTrue(d, keep));
    hn::Store(hn::IfThenElse(keep, v, hidden), d, s + x);
  }
  return visible;
}

// The same for a row's whole block. A bias or a mask alone is read where it lies. A hidden key's score is replaced, not
// added to, so a NaN in it does not spread.
template <class T>
HWY_NOINLINE std::int64_t ApplyDenseTerms(const Call& call, const ForwardHead& head, const RowBlock& row,
                                          const DenseScratch<T>& scratch, T* HWY_RESTRICT s) {
  const auto n = static_cast<std::int64_t>(hn::Lanes(hn::ScalableTag<T>()));
  const auto first = [&](const Rows& from) { return row.g * from.head_stride + row.i * from.row_stride + row.first; };
  const Range inside = {RoundUp(row.seen.begin, n), row.seen.end / n * n};
  const bool others = call.softcap > 0 || head.alibi.data != nullptr || row.holes || inside.empty();
  const bool masked = head.mask.data != nullptr, biased = head.bias.data != nullptr;
  const bool relative = head.relative.data != nullptr;
  const bool alone = !others && int{masked} + int{biased} + int{relative} == 1;
  std::int64_t visible = 0;
  if (alone && relative) {
    visible = AddBias(inside, RelativeRow<T>(call, head, row), s);
  } else if (alone && biased && head.bias.column_stride == 1) {
    WithType<T>(call.bias.dtype, [&](auto* type) {
      visible = AddBias(inside, static_cast<decltype(type)>(head.bias.data) + first(head.bias), s);
    });
  } else if (alone && masked && head.mask.column_stride == 1) {
    visible = ApplyMask(inside, static_cast<const std::uint8_t*>(head.mask.data) + first(head.mask), s);
  } else {
    return ApplyAllTerms(call, head, row, row.computed, scratch, s);
  }
  for (const Range edge : {Range{row.computed.begin, inside.begin}, Range{inside.end, row.computed.end}}) {
    if (Clip(row.seen, edge).empty()) {
      HideOutside(edge, {edge.begin, edge.begin}, s);
    } else {
      visible += ApplyAllTerms(call, head, row, edge, scratch, s);
    }
  }
  return visible;
}

// Everything between a row's scores and its softmax, `dense` as HasDenseTerms() says. Returns how many keys of the
// block stay visible.
template <class T>
HWY_INLINE std::int64_t MaskRow(const Call& call, const ForwardHead& head, bool dense, const RowBlock& row,
                                const DenseScratch<T>& scratch, T* HWY_RESTRICT s) {
  if (dense && !row.seen.empty()) return ApplyDenseTerms<T>(call, head, row, scratch, s);
  if (row.holes) {
    FillVisible(head, row.g, row.i, row.first, row.seen, scratch.mask);
    std::fill(scratch.mask + row.computed.begin, scratch.mask + row.seen.begin, std::uint8_t{0});
    std::fill(scratch.mask + row.seen.end, scratch.mask + row.computed.end, std::uint8_t{0});
    return ApplyMask(row.computed, scratch.mask, s);
  }
  HideOutside(row.computed, row.seen, s);
  return row.seen.end - row.seen.begin;
}

// Whether query i of head g sees key j, by every mask: the slow way, used if v is not finite.
HWY_INLINE bool IsVisible(const Call& call, const ForwardHead& head, std::int64_t g, std::int64_t i, std::int64_t j) {
  const Range range = VisibleKeys(KeysInReach(call, head), head, g, i);
  if (j < range.begin || j >= range.end) return false;
  if (head.tiles && !head.tiles.sees(0, g, head.tiles_row + i, head.tiles_key + j)) return false;
  if (head.relative.data != nullptr) {
    const RowBlock key = {.g = g, .i = i, .first = j, .computed = {}, .seen = {}};
    const DType dtype = accumulation_dtype(call.dtype);
    const double bias =
        dtype == DType::f64 ? *RelativeRow<double>(call, head, key) : *RelativeRow<float>(call, head, key);
    if (bias == -INFINITY) return false;
  }
  if (head.mask.data != nullptr) {
    const std::int64_t at = g * head.mask.head_stride + i * head.mask.row_stride + j * head.mask.column_stride;
    if (static_cast<const std::uint8_t*>(head.mask.data)[at] == 0) return false;
  }
  if (head.bias.data == nullptr) return true;
  const std::int64_t at = g * head.bias.head_stride + i * head.bias.row_stride + j * head.bias.column_stride;
  return LoadOne<double>(call.bias.dtype, head.bias.data, at) != -INFINITY;
}

}  // namespace keel::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
