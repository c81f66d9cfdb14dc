// What all steps of the backward pass share: the call, a head's memory and a thread's scratch, blocks of rows and keys
// loaded into it, and the products of a block.
#if defined(KEEL_CPU_BACKWARD_BLOCK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KEEL_CPU_BACKWARD_BLOCK_INL_H_
#undef KEEL_CPU_BACKWARD_BLOCK_INL_H_
#else
#define KEEL_CPU_BACKWARD_BLOCK_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>

#include "cpu/backward.h"
#include "cpu/backward_keys-inl.h"
#include "cpu/backward_scratch-inl.h"
#include "cpu/dropout-inl.h"
#include "cpu/gemm-inl.h"
#include "cpu/mask-inl.h"
#include "cpu/pack-inl.h"
#include "cpu/products-inl.h"

HWY_BEFORE_NAMESPACE();
namespace keel::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Rows (rows, lda) times panels (steps, panel), of which one begins every `depth` steps, times a factor per row if they
// are given: into c, rows ldc apart.
template <class P>
struct RowsTimesPanels {
  const typename P::Operand* a;
  std::int64_t lda;
  const typename P::Operand* panels;
  std::int64_t steps, depth;
  const typename P::T* factors;
  typename P::T* c;
  std::int64_t ldc;
};

// What a block of keys adds to sums per row: weights (rows, ldw) times packed values of keys.
template <class P>
struct RowTerms {
  const typename P::Operand* weights;
  std::int64_t ldw;
  const typename P::Operand* values;
  Layout layout;
  typename P::T* sums;
  std::int64_t lds, columns;
  bool finite;  // all values
};

// The columns of a panel: d of them, from `from` on among `depth`, or d alone.
struct PanelShape {
  std::int64_t d, depth = 0, from = 0;
};

template <class P>
class BackwardBlock {
 protected:
  using T = typename P::T;
  using Operand = typename P::Operand;

  BackwardBlock(const BackwardCall& call, const BackwardHead& head, std::byte* workspace)
      : call_(call),
        f_(call.forward),
        head_(head),
        h_(head.forward),
        rows_(h_.n_q * f_.group),
        scratch_(call, workspace),
        memory_(call, rows_, head.memory),
        dense_(HasDenseTerms(f_, h_)),
        seen_(h_.tiles ? scratch_.seen : scratch_.keys),
        dropout_(f_.dropout, f_.seed) {
    std::fill_n(scratch_.ones, P::kRowTile, T{1});
  }

  RowPlace PlaceOf(std::int64_t r) const { return {r, f_.group}; }

  T RowValue(const Rows& rows, std::int64_t g, std::int64_t i) const {
    return static_cast<const T*>(rows.data)[g * rows.head_stride + i * rows.row_stride];
  }

  void LoadQuery(std::int64_t g, std::int64_t i, T factor, T* to) const {
    LoadRow<T>(f_.dtype, h_.q.data, g * h_.q.head_stride + i * h_.q.row_stride, h_.q.column_stride, f_.d_k, factor, to);
  }

  void FindKeys(std::int64_t r, std::int64_t rows) { FindVisible(f_, h_, PlaceOf(r), rows, scratch_.keys); }

  // What these rows see of a block of keys.
  void FindSeen(std::int64_t r, std::int64_t rows, Range block) {
    if (h_.tiles) HWY_NAMESPACE::FindSeen(h_, PlaceOf(r), rows, block, scratch_.keys, scratch_.seen, scratch_.holes);
  }

  // Prefetches what FindSeen() will read.
  void PrefetchSeen(std::int64_t r, std::int64_t rows, Range block) const {
    if (h_.tiles) PrefetchTiles(h_, PlaceOf(r), rows, block);
  }

  // From the first to the last row for which a block mask lists any of the keys: all without one.
  Range RowsThatList(Range block) const {
    const Range all = {0, rows_};
    return h_.tiles ? HWY_NAMESPACE::RowsThatList(h_, all, f_.group, block) : all;
  }

  // Whether a block mask hides all of the keys from all of the rows.
  bool HidesAll(std::int64_t r, std::int64_t rows, Range block) const {
    if (!h_.tiles) return false;
    const std::int64_t step = h_.tiles.rows, last = h_.tiles_row + (r + rows - 1) / f_.group;
    for (std::int64_t i = h_.tiles_row + r / f_.group; i <= last; i = (i / step + 1) * step) {
      for (std::int64_t g = 0; g < (h_.tiles.head != 0 ? f_.group : 1); ++g) {
        const BlockTiles::List part = PartOf(h_, g, i - h_.tiles_row, block);
        if (part.begin < part.end) return false;
      }
    }
    return true;
  }

  // Operands of a row of q or do that are read: whole vectors of them.
  static std::int64_t Filled(std::int64_t d) {
    return RoundUp(P::Steps(d), static_cast<std::int64_t>(hn::Lanes(hn::ScalableTag<T>())));
  }

  // Zeros behind the last row: products read whole tiles of rows, and pairs of rows are read whole.
  void ZeroTail(Operand* rows_of, std::int64_t rows, std::int64_t ld) const {
    std::fill(rows_of + rows * ld, rows_of + RoundUp(P::TiledRows(rows), std::int64_t{2}) * ld, Operand{});
  }

  // The queries, and scale·log₂e. Rows that see nothing become 0: their values must not meet a weight of 0.
  void LoadQueries(std::int64_t r, std::int64_t rows) {
    const std::int64_t ld = scratch_.ldq, steps = P::Steps(f_.d_k), filled = Filled(f_.d_k);
    RowPlace place = PlaceOf(r);
    for (std::int64_t x = 0; x < rows; ++x, ++place) {
      Operand* const to = scratch_.q + x * ld;
      const bool masked = scratch_.keys[x].empty() || memory_.numbers[r + x].top == static_cast<T>(-INFINITY);
      scratch_.scale[x] = masked ? T{0} : static_cast<T>(ScaleOf(f_, h_, place.g, place.i) * kLog2E);
      if (masked || steps < filled) std::fill(to + (masked ? 0 : steps), to + filled, Operand{});
      if (masked) continue;
      WithType<T>(f_.dtype, [&](auto* type) {
        P::LoadQuery(static_cast<decltype(type)>(h_.q.data) + place.g * h_.q.head_stride + place.i * h_.q.row_stride,
                     h_.q.column_stride, f_.d_k, scratch_.scale[x], to);
      });
    }
    ZeroTail(scratch_.q, rows, ld);
  }

  // Whether the queries times their scale are finite, and the gradients below: asked only if some row does not see some
  // key, as 0·Inf is not 0.
  bool HasFiniteQueries(std::int64_t rows) const {
    return P::AreFinite(scratch_.q, rows, f_.d_k, scratch_.ldq) &&
           (h_.scale.data == nullptr
                ? std::isfinite(static_cast<T>(f_.scale * kLog2E))
                : std::all_of(scratch_.scale, scratch_.scale + rows, [](T x) { return std::isfinite(x); }));
  }
  // Where out·do is finite, do is.
  bool HasFiniteGradients(std::int64_t r, std::int64_t rows) const {
    const RowNumbers<T>* const numbers = memory_.numbers + r;
    return std::all_of(numbers, numbers + rows, [](const auto& row) { return std::isfinite(row.delta); }) ||
           P::AreFinite(scratch_.dout, rows, f_.d_v, scratch_.ldo);
  }

  void PackPanels(DType dtype, const Rows& from, Range block, const PanelShape& shape, Operand* to) {
    const std::int64_t depth = shape.depth > 0 ? shape.depth : P::Steps(shape.d);
    for (std::int64_t j = block.begin; j < block.end; j += scratch_.panel) {
      P::PackPanel(dtype, from, j, std::min(scratch_.panel, block.end - j), shape.d, {scratch_.panel},
                   to + (j - block.begin) * depth + shape.from * scratch_.panel);
    }
  }

  // What each tile of rows sees of the block, counted from its first key.
  void FindNeeded(std::int64_t rows, Range block) {
    for (std::int64_t x = 0; x < rows; x += P::kRowTile) {
      const Range needed = NeededKeys(seen_ + x, std::min<std::int64_t>(P::kRowTile, rows - x), block);
      scratch_.needed[x / P::kRowTile] =
          needed.empty() ? needed : Range{needed.begin - block.begin, needed.end - block.begin};
    }
  }

  // What a row's tile computes, from a whole panel on, in pairs of vectors. Sizes are constants, so nothing divides.
  Range Computed(std::int64_t x) const {
    const Range needed = scratch_.needed[x / P::kRowTile];
    if (needed.empty()) return {0, 0};
    const auto lanes = static_cast<std::int64_t>(hn::Lanes(hn::ScalableTag<T>()));
    return {needed.begin / P::PanelKeys() * P::PanelKeys(), RoundUp(needed.end, 2 * lanes)};
  }

  RowBlock BlockOf(std::int64_t x, const RowPlace& place, Range block, Range computed) const {
    return {place.g,
            place.i,
            block.begin,
            computed,
            SeenOf(seen_[x], block, block.begin, computed),
            h_.tiles && scratch_.holes[x] != 0};
  }

  static constexpr auto kNothing = [](auto...) {};

  // c = a·panels for what is needed: q·kᵀ and do·vᵀ. Calls before() for every tile of rows and keys.
  template <class Before>
  void MultiplyPanels(const RowsTimesPanels<P>& x, std::int64_t rows, const Before& before) const {
    const std::int64_t width = P::PanelKeys();
    for (std::int64_t y = 0; y < call_.tiles.key_block; y += width) {
      for (std::int64_t r = 0; r < rows; r += P::kRowTile) {
        const Range needed = scratch_.needed[r / P::kRowTile];
        if (needed.end <= y || needed.begin >= y + width) continue;
        const std::int64_t tile_rows = std::min<std::int64_t>(P::kRowTile, rows - r);
        before(r, tile_rows, needed, y);
        // Of the tile's first and last panel only the vectors that hold a key. The rest is undefined, NaN included:
        // what a row does not see becomes 0 by selection, never by a product.
        const std::int64_t begin = RoundDown(std::max(needed.begin, y), P::ColumnGranule());
        const ProductOf<P> tile = {.rows = static_cast<int>(tile_rows),
                                   .a = x.a + r * x.lda,
                                   .lda = x.lda,
                                   .b = x.panels + y * x.depth + (begin - y),
                                   .layout = {width},
                                   .k = x.steps,
                                   .alpha = x.factors == nullptr ? nullptr : x.factors + r,
                                   .c = x.c + r * x.ldc + begin,
                                   .ldc = x.ldc};
        const std::int64_t columns = RoundUp(std::min(needed.end, y + width) - begin, P::ColumnGranule());
        if (P::kScores == Into::kSet || x.factors == nullptr) {
          P::template MultiplyPanel<Into::kSet>(tile, columns);
        } else {
          P::template MultiplyPanel<P::kScores>(tile, columns);
        }
      }
    }
  }

  RowsTimesPanels<P> QueriesTimesKeys() const {
    const std::int64_t steps = P::Steps(f_.d_k);
    return {scratch_.q, scratch_.ldq, scratch_.k_panels, steps, steps, scratch_.scale, scratch_.s, scratch_.lds};
  }
  RowsTimesPanels<P> GradientsTimesValues() const {
    const std::int64_t steps = P::Steps(f_.d_v);
    return {scratch_.dout, scratch_.ldo, scratch_.v_panels, steps, steps, nullptr, scratch_.t, scratch_.lds};
  }

  void LoadGradients(std::int64_t r, std::int64_t rows) {
    const std::int64_t ld = scratch_.ldo, steps = P::Steps(f_.d_v), filled = Filled(f_.d_v);
    RowPlace place = PlaceOf(r);
    for (std::int64_t x = 0; x < rows; ++x, ++place) {
      Operand* const to = scratch_.dout + x * ld;
      const bool masked = memory_.numbers[r + x].top == static_cast<T>(-INFINITY);
      if (masked || steps < filled) std::fill(to + (masked ? 0 : steps), to + filled, Operand{});
      if (masked) continue;
      WithType<T>(call_.dout.dtype, [&](auto* type) {
        P::LoadQuery(static_cast<decltype(type)>(head_.dout.data) + place.g * head_.dout.head_stride +
                         place.i * head_.dout.row_stride,
                     head_.dout.column_stride, f_.d_v, T{1}, to);
      });
    }
    ZeroTail(scratch_.dout, rows, ld);
  }

  // The rows that see each tile of keys: all of them, except under a causal mask or a window.
  void FindRows(std::int64_t rows, Range block) {
    for (std::int64_t y = 0; block.begin + y < block.end; y += P::kKeyTile) {
      Range& found = scratch_.rows[y / P::kKeyTile];
      found = {0, rows};
      const Range tile = {block.begin + y, block.begin + y + P::kKeyTile};
      while (found.begin < found.end && Clip(seen_[found.begin], tile).empty()) ++found.begin;
      while (found.begin < found.end && Clip(seen_[found.end - 1], tile).empty()) --found.end;
    }
  }

  void AddToKeys(std::int64_t r, std::int64_t rows, Range block, const KeyTerms<P>& terms, KeyGradients<P>& to) {
    if (terms.finite || !masked_) return to.Add(terms, block.end - block.begin);
    // A row must not touch what it does not see: 0·Inf is not 0.
    ForVisiblePairs(r, rows, block, [&](std::int64_t x, std::int64_t y) { to.AddOne(terms, x, y); });
  }

  // sums += weights·values. A few columns of the values at a time serve all rows, from the first-level cache if the
  // block's keys fit into it.
  void AddToRows(std::int64_t r, std::int64_t rows, Range block, const RowTerms<P>& x) {
    if (!x.finite && masked_) {
      ForVisiblePairs(r, rows, block, [&](std::int64_t row, std::int64_t y) {
        const T weight = P::At(x.weights + row * x.ldw, y);
        for (std::int64_t c = 0; c < x.columns; ++c) {
          x.sums[row * x.lds + c] += weight * P::Packed(x.values, x.layout, y, c);
        }
      });
      return;
    }
    P::ForColumns(x.columns, [&](std::int64_t c, std::int64_t width) {
      for (std::int64_t row = 0; row < rows; row += P::kRowTile) {
        const Range needed = scratch_.needed[row / P::kRowTile];
        if (needed.empty()) continue;
        const Range steps = P::StepsOf(needed);
        const ProductOf<P> tile = {.rows = static_cast<int>(std::min<std::int64_t>(P::kRowTile, rows - row)),
                                   .a = x.weights + row * x.ldw + steps.begin,
                                   .lda = x.ldw,
                                   .b = x.values + x.layout.At(steps.begin, c),
                                   .layout = x.layout,
                                   .k = steps.end - steps.begin,
                                   .alpha = scratch_.ones,
                                   .c = x.sums + row * x.lds + c,
                                   .ldc = x.lds};
        P::template Multiply<Into::kAdd>(tile, width);
      }
    });
  }

  // Calls f(row, key), counted from r and from the block's first key, for every pair that all masks allow: the slow
  // way, if something is not finite.
  template <class F>
  void ForVisiblePairs(std::int64_t r, std::int64_t rows, Range block, const F& f) const {
    RowPlace place = PlaceOf(r);
    for (std::int64_t x = 0; x < rows; ++x, ++place) {
      for (std::int64_t y = 0; y < block.end - block.begin; ++y) {
        if (IsVisible(f_, h_, place.g, place.i, block.begin + y)) f(x, y);
      }
    }
  }

  // A row with a NaN among its visible scores, or nothing but −inf, is NaN wherever it sees a key, and only there.
  void SpreadNaN(const RowBlock& row, T* s, T* t) const {
    for (std::int64_t y = row.computed.begin; y < row.computed.end; ++y) {
      const bool seen = y >= row.seen.begin && y < row.seen.end && IsVisible(f_, h_, row.g, row.i, row.first + y);
      s[y] = seen ? static_cast<T>(NAN) : T{0};
      if (call_.needs_ds()) t[y] = s[y];
    }
  }

  // A row of a gradient, factor · from: written, or added to what is there.
  HWY_INLINE void Write(DType dtype, const MutableRows& to, std::int64_t at, std::int64_t n, T factor,
                        const T* from) const {
    if (call_.accumulate) return AddRow<T>(dtype, to.data, at, to.column_stride, n, factor, from);
    StoreRow<T>(dtype, to.data, at, to.column_stride, n, factor, from);
  }

  void AddToBias(const RowBlock& row, const T* ds) {
    const std::int64_t keys = row.seen.end - row.seen.begin, j = row.first + row.seen.begin;
    if (head_.dbias_sums.data == nullptr) {
      const MutableRows& to = head_.dbias;
      return Write(call_.dbias.dtype, to, row.g * to.head_stride + row.i * to.row_stride + j * to.column_stride, keys,
                   T{1}, ds + row.seen.begin);
    }
    const MutableRows& to = head_.dbias_sums;
    T* const sums = static_cast<T*>(to.data) + row.g * to.head_stride + row.i * to.row_stride + j * to.column_stride;
    const T* const from = ds + row.seen.begin;
    std::int64_t y = 0;
    if (to.column_stride == 1) {
      const hn::ScalableTag<T> d;
      for (; y + scratch_.lanes <= keys; y += scratch_.lanes) {
        hn::StoreU(hn::Add(hn::LoadU(d, sums + y), hn::LoadU(d, from + y)), d, sums + y);
      }
    }
    for (; y < keys; ++y) sums[y * to.column_stride] += from[y];
  }

  const BackwardCall& call_;
  const Call& f_;
  const BackwardHead& head_;
  const ForwardHead& h_;
  const std::int64_t rows_;
  const BackwardScratch<P> scratch_;
  const HeadMemory<P> memory_;
  const bool dense_;
  const Range* const seen_;  // per row, of the block of keys at hand or of all
  const Dropout dropout_;
  bool masked_ = false;  // some row does not see some key of the block
};

}  // namespace keel::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
