// A step of a product by tiles: all that one load of A and B per tile can multiply.
//
// Operands of one part are bf16. Operands of three parts are float, each the sum of a high, a middle and a low bf16,
// which hold all of its 24 bits (split-inl.h). Of the nine products of parts, six count: the other three are less than
// 2^-24 of the whole.
#if defined(KEEL_CPU_TILE_STEP_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KEEL_CPU_TILE_STEP_INL_H_
#undef KEEL_CPU_TILE_STEP_INL_H_
#else
#define KEEL_CPU_TILE_STEP_INL_H_
#endif

#include <hwy/highway.h>

#include <cstdint>
#include <utility>

#include "cpu/gemm-inl.h"

HWY_BEFORE_NAMESPACE();
namespace keel::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using TileProduct = Product<float, Pair, Pair>;

// Rows of C times alpha, those with an alpha of 1 too if `ones`.
HWY_INLINE void ScaleRows(const TileProduct& x, std::ptrdiff_t columns, bool ones) {
  const hn::ScalableTag<float> d;
  for (int r = 0; r < x.rows; ++r) {
    if (!ones && x.alpha[r] == 1.0f) continue;
    const auto alpha = hn::Set(d, x.alpha[r]);
    float* const row = x.c + r * x.ldc;
    for (std::ptrdiff_t c = 0; c < columns; c += static_cast<std::ptrdiff_t>(hn::Lanes(d))) {
      hn::StoreU(hn::Mul(hn::LoadU(d, row + c), alpha), d, row + c);
    }
  }
}

// Which parts of A and B are multiplied, in order; 0 is the high one. Each load serves as many products as it can, and
// those of B, which come from farther away, are all but one done once.
template <int kParts>
struct PartsOf {
  static constexpr int kCount = 1;
  static constexpr int a[] = {0}, b[] = {0};
};
template <>
struct PartsOf<3> {
  static constexpr int kCount = 6;
  static constexpr int a[] = {2, 1, 1, 0, 0, 0}, b[] = {0, 0, 1, 1, 0, 2};
};

// MT × NT tiles of C: sums in tiles from 0 on, then MT tiles of A, then B, one after the other if there are not enough.
// The parts of 16 pairs of A are side by side, those of 16 steps of B one behind the other.
template <class Tiles, int kParts, int MT, int NT>
HWY_INLINE void TileStep(const TileProduct& x, const Pair* a, const Pair* b) {
  static_assert(MT * NT <= 4 && (MT == 1 || NT <= 2));
  using Parts = PartsOf<kParts>;
  constexpr std::ptrdiff_t kTile = 16;
  constexpr bool kKeepsB = MT == 2 || NT < 4;
  const std::ptrdiff_t lda = x.lda * 4, ldb = x.layout.row * 4;
  const auto product = [&]<int i>(std::integral_constant<int, i>) {
    constexpr int before = i > 0 ? i - 1 : 0;
    if constexpr (i == 0 || Parts::a[i] != Parts::a[before]) {
      const Pair* const from = a + Parts::a[i] * kTile;
      Tiles::template Load<4>(from, lda);
      if constexpr (MT == 2) Tiles::template Load<5>(from + kTile * x.lda, lda);
    }
    [&]<int... n>(std::integer_sequence<int, n...>) {
      (
          [&] {
            constexpr int kB = MT == 2 ? 6 + n : 5 + n % 3;
            if constexpr (i == 0 || !kKeepsB || Parts::b[i] != Parts::b[before]) {
              Tiles::template Load<kB>(b + Parts::b[i] * kTile * x.layout.row + n * x.layout.tile, ldb);
            }
            Tiles::template MultiplyAdd<n, 4, kB>();
            if constexpr (MT == 2) Tiles::template MultiplyAdd<NT + n, 5, kB>();
          }(),
          ...);
    }
    (std::make_integer_sequence<int, NT>());
  };
  [&]<int... i>(std::integer_sequence<int, i...>) { (product(std::integral_constant<int, i>()), ...); }
  (std::make_integer_sequence<int, Parts::kCount>());
}

}  // namespace keel::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
