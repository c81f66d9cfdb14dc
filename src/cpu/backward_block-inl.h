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
#include "cpu/backward_scratch-inl.h"
#include "cpu/dropout-inl.h"
#include "cpu/gemm-inl.h"
#include "cpu/mask-inl.h"
#include "cpu/pack-inl.h"
#include "cpu/products-inl.h"

HWY_BEFORE_NAMESPACE();
namespace keel::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Rows (rows, lda) times panels (steps, panel), times a factor per row if they are given: into c, rows lds apart.
template <class P>
struct RowsTimesPanels {
  const typename P::Operand* a;
  std::int64_t lda;
  const typename P::Operand* panels;
  std::int64_t steps;
  const typename P::T* factors;
  typename P::T* c;
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
        seen_(h_.tiles ? scratch_.seen : scratch_.keys) {}

  RowPlace PlaceOf(std::int64_t r) const { return {r, f_.group}; }

  T RowValue(const Rows& rows, std::int64_t g, std::int64_t i) const {
    return static_cast<const T*>(rows.data)[g * rows.head_stride + i * rows.row_stride];
  }

  void LoadQuery(std::int64_t g, std::int64_t i, T factor, T* to) const {
    LoadRow<T>(f_.dtype, h_.q.data, g * h_.q.head_stride + i * h_.q.row_stride, h_.q.column_stride, f_.d_k, factor, to);
  }

  void FindKeys(std::int64_t r, std::int64_t rows) {
    RowPlace place = PlaceOf(r);
    for (std::int64_t x = 0; x < rows; ++x, ++place) scratch_.keys[x] = VisibleKeys(f_, h_, place.g, place.i);
  }

  // What these rows see of a block of keys.
  void FindSeen(std::int64_t r, std::int64_t rows, Range block) {
    if (h_.tiles) HWY_NAMESPACE::FindSeen(h_, PlaceOf(r), rows, block, scratch_.keys, scratch_.seen, scratch_.holes);
  }

  // Rows of zeros, which the last product reads.
  void ZeroTail(Operand* rows_of, std::int64_t rows, std::int64_t ld) const {
    std::fill(rows_of + rows * ld, rows_of + P::TiledRows(rows) * ld, Operand{});
  }

  // The queries, and scale·log₂e. Rows that see nothing become 0: their values must not meet a weight of 0.
  void LoadQueries(std::int64_t r, std::int64_t rows) {
    const std::int64_t ld = scratch_.ldq;
    RowPlace place = PlaceOf(r);
    for (std::int64_t x = 0; x < rows; ++x, ++place) {
      Operand* const to = scratch_.q + x * ld;
      const bool masked = scratch_.keys[x].empty() || memory_.numbers[r + x].top == static_cast<T>(-INFINITY);
      scratch_.scale[x] = masked ? T{0} : static_cast<T>(ScaleOf(f_, h_, place.g, place.i) * kLog2E);
      std::fill(to + (masked ? 0 : P::Steps(f_.d_k)), to + ld, Operand{});
      if (masked) continue;
      WithType<T>(f_.dtype, [&](auto* type) {
        P::LoadQuery(static_cast<decltype(type)>(h_.q.data) + place.g * h_.q.head_stride + place.i * h_.q.row_stride,
                     h_.q.column_stride, f_.d_k, scratch_.scale[x], to);
      });
    }
    ZeroTail(scratch_.q, rows, ld);
    finite_q_ = P::AreFinite(scratch_.q, rows, f_.d_k, ld) &&
                std::all_of(scratch_.scale, scratch_.scale + rows, [](T x) { return std::isfinite(x); });
  }

  void PackPanels(const Rows& from, Range block, std::int64_t d, Operand* to) {
    for (std::int64_t j = block.begin; j < block.end; j += scratch_.panel) {
      P::PackPanel(f_.dtype, from, j, std::min(scratch_.panel, block.end - j), d, scratch_.panel,
                   to + (j - block.begin) * P::Steps(d));
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

  // The whole panels that a row's tile computes.
  Range Computed(std::int64_t x) const {
    const Range needed = scratch_.needed[x / P::kRowTile];
    if (needed.empty()) return {0, 0};
    const std::int64_t width = scratch_.panel;
    return {needed.begin / width * width, RoundUp(needed.end, width)};
  }

  RowBlock BlockOf(std::int64_t x, const RowPlace& place, Range block, Range computed) const {
    return {place.g, place.i, block.begin, computed, SeenOf(seen_[x], block, block.begin, computed),
            h_.tiles && scratch_.holes[x] != 0};
  }

  static constexpr auto nothing = [](auto...) {};

  // c = a·panels for what is needed: q·kᵀ and do·vᵀ. Calls before() for every tile of rows and keys.
  template <class Before>
  void MultiplyPanels(const RowsTimesPanels<P>& x, std::int64_t rows, const Before& before) const {
    const std::int64_t width = scratch_.panel;
    for (std::int64_t y = 0; y < call_.tiles.key_block; y += width) {
      for (std::int64_t r = 0; r < rows; r += P::kRowTile) {
        const Range needed = scratch_.needed[r / P::kRowTile];
        if (needed.end <= y || needed.begin >= y + width) continue;
        const std::int64_t tile_rows = std::min<std::int64_t>(P::kRowTile, rows - r);
        before(r, tile_rows, needed, y);
        const ProductOf<P> tile = {.rows = static_cast<int>(tile_rows),
                                   .a = x.a + r * x.lda,
                                   .lda = x.lda,
                                   .b = x.panels + y * x.steps,
                                   .ldb = width,
                                   .k = x.steps,
                                   .alpha = x.factors == nullptr ? nullptr : x.factors + r,
                                   .c = x.c + r * scratch_.lds + y,
                                   .ldc = scratch_.lds};
        const std::int64_t columns = RoundUp(std::min(needed.end - y, width), scratch_.granule);
        if (P::kScores == Into::kSet || x.factors == nullptr) {
          P::template Multiply<Into::kSet>(tile, columns);
        } else {
          P::template Multiply<P::kScores>(tile, columns);
        }
      }
    }
  }

  RowsTimesPanels<P> QueriesTimesKeys() const {
    return {scratch_.q, scratch_.ldq, scratch_.k_panels, P::Steps(f_.d_k), scratch_.scale, scratch_.s};
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
  bool finite_q_ = true;
};

}  // namespace keel::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
