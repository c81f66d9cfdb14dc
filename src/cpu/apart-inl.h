// What a product of split floats leaves out (split-inl.h): the scores of queries and keys that are not split, and the
// values that are not. They are computed by fused multiply-adds, element by element in the order of its index, so that
// a row's bits depend on the row and on the keys that it sees alone.
//
// Cost: a strip and panel with such a row takes as long as without the unit, a value as much as its multiply-adds.
#if defined(KEEL_CPU_APART_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KEEL_CPU_APART_INL_H_
#undef KEEL_CPU_APART_INL_H_
#else
#define KEEL_CPU_APART_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstdint>

#include "cpu/forward.h"
#include "cpu/mask-inl.h"
#include "cpu/products-inl.h"
#include "cpu/scratch-inl.h"

HWY_BEFORE_NAMESPACE();
namespace keel::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Whether one of the rows of a strip is not split.
template <class P>
HWY_INLINE bool HasRowsApart(const Scratch<P>& scratch, const Strip& strip) {
  const std::uint8_t* const rows = scratch.q_apart + strip.r;
  return std::any_of(rows, rows + strip.rows, [](std::uint8_t apart) { return apart != 0; });
}

// The scores of a strip, whose first row is at `place`, against a panel of the block that begins with key `first`:
// those of rows and keys that are not split. Of such a row they are scaled; of other rows they are if the others are.
template <class P>
HWY_NOINLINE void ScoreApart(const ForwardCall& call, const ForwardHead& head, const Scratch<P>& scratch,
                             const Strip& strip, RowPlace place, std::int64_t panel, std::int64_t first, bool late) {
  using T = typename P::T;
  using Fma = FmaProducts<T>;
  const std::int64_t rows = strip.rows, from = panel * P::PanelKeys();
  const std::int64_t keys = std::min(P::PanelKeys(), head.k_len - first - from);
  const std::int64_t ldq = scratch.apart_ldq, width = Fma::PanelKeys(), lds = P::PanelKeys();
  for (std::int64_t x = 0; x < rows; ++x, ++place) {
    const bool apart = scratch.q_apart[strip.r + x] != 0;
    LoadRow<T>(call.dtype, head.q.data, place.g * head.q.head_stride + place.i * head.q.row_stride,
               head.q.column_stride, call.d_k, late && !apart ? T{1} : scratch.scale[strip.r + x],
               scratch.apart_q + x * ldq);
  }
  for (std::int64_t y = 0; y < keys; y += width) {
    const std::int64_t count = std::min(width, keys - y);
    Fma::PackPanel(call.dtype, head.k, first + from + y, count, call.d_k, {width}, scratch.apart_k);
    for (std::int64_t x = 0; x < rows; x += Fma::kRowTile) {
      const Product<T> product = {.rows = static_cast<int>(std::min<std::int64_t>(Fma::kRowTile, rows - x)),
                                  .a = scratch.apart_q + x * ldq,
                                  .lda = ldq,
                                  .b = scratch.apart_k,
                                  .layout = {width},
                                  .k = call.d_k,
                                  .c = scratch.apart_s + x * lds + y,
                                  .ldc = lds};
      Fma::template MultiplyPanel<Into::kSet>(product, RoundUp(count, Fma::ColumnGranule()));
    }
  }
  for (std::int64_t x = 0; x < rows; ++x) {
    T* const s = scratch.ScoresOf(strip) + x * scratch.lds + from;
    const bool apart = scratch.q_apart[strip.r + x] != 0;
    for (std::int64_t y = 0; y < keys; ++y) {
      if (apart || scratch.k_apart[from + y] != 0) s[y] = scratch.apart_s[x * lds + y];
    }
  }
}

// Adds the values of the keys of `block`, counted from `first` on, that are not split to the sums of a strip, whose
// first row is at `place`; o is its first row of sums.
template <class P>
HWY_NOINLINE void AddApart(const ForwardCall& call, const ForwardHead& head, const Scratch<P>& scratch,
                           const Strip& strip, const RowPlace& place, Range block, std::int64_t first,
                           typename P::T* o) {
  using T = typename P::T;
  const hn::ScalableTag<T> d;
  std::fill_n(scratch.row_o, scratch.ldv, T{0});
  for (std::int64_t j = block.begin; j < block.end; ++j) {
    const std::int64_t y = j - first;
    if (scratch.v_apart[y] == 0 || y < strip.needed.begin || y >= strip.needed.end) continue;
    LoadRow<T>(call.dtype, head.v.data, j * head.v.row_stride, head.v.column_stride, call.d_v, T{1}, scratch.row_o);
    RowPlace at = place;
    for (std::int64_t x = 0; x < strip.rows; ++x, ++at) {
      const T weight = P::WeightAt(scratch.ScoresOf(strip) + x * scratch.lds, y);
      if (weight == 0 && !IsVisible(call, head, at.g, at.i, j)) continue;  // 0·Inf is not 0
      T* const row = o + x * scratch.ldv;
      for (std::int64_t c = 0; c < scratch.ldv; c += scratch.lanes) {
        const auto value = hn::Load(d, scratch.row_o + c);
        hn::Store(hn::MulAdd(hn::Set(d, weight), value, hn::Load(d, row + c)), d, row + c);
      }
    }
  }
}

}  // namespace keel::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
