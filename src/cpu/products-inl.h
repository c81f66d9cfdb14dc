// How the kernels multiply: what they are templates of. A way to multiply says what the scratch memory holds of q, k
// and v, how it gets there, and what a product is; masks, softmax, statistics and epilogue are the same for all.
//
//   FmaProducts<T>       fused multiply-adds in T, to which every dtype is widened
//   PairProducts<...>    bf16 as it is, in pairs, sums in f32: the base of those that use a matrix unit
//   DotProducts          AVX512_BF16, vectors of sums of two products
//   TileProducts<Tiles>  AMX, tiles of 16 × 16 sums of 32 products (tile_products-inl.h)
//   SplitProducts<Tiles> the same for f32 in three parts of bf16 (split_products-inl.h)
#if defined(KEEL_CPU_PRODUCTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KEEL_CPU_PRODUCTS_INL_H_
#undef KEEL_CPU_PRODUCTS_INL_H_
#else
#define KEEL_CPU_PRODUCTS_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstdint>

#include "cpu/decode-inl.h"
#include "cpu/gemm-inl.h"
#include "cpu/pack-inl.h"
#include "cpu/pairs-inl.h"

HWY_BEFORE_NAMESPACE();
namespace keel::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// For products that are done at once: a queue that takes none (tile_queue-inl.h has one that does).
struct NoQueue {
  static constexpr std::int64_t kBuffers = 1;
  template <class Product>
  static constexpr bool Takes(const Product&, std::ptrdiff_t) {
    return false;
  }
  template <Into, class Product>
  static void Add(const Product&, std::ptrdiff_t) {}
  static void Expect(std::int64_t) {}
  static HWY_INLINE void Tick() {}
  static void Finish() {}
};

template <class Float>
struct FmaProducts {
  using T = Float;        // of sums
  using Operand = Float;  // of what is multiplied
  using Queue = NoQueue;  // of products that go on beside the softmax
  static constexpr bool kPairs = false;
  static constexpr bool kTransposesSums = false;                     // keeps dk and dv by columns (backward_keys-inl.h)
  static constexpr bool kSplits = false;                             // operands are in parts, and some are not split
  static constexpr std::int64_t kScoresFrom = 0;                     // where scores begin in the memory of their row
  static constexpr bool kStreams = true;                             // reads k and v in place for few rows
  static constexpr bool kLateScale = false;                          // leaves scores to be scaled by the softmax
  static constexpr std::int64_t kRowTile = HWY_NAMESPACE::kRowTile;  // rows per product
  static constexpr std::int64_t kStripRows =
      2 * kRowTile;  // rows that go through all passes together, in the first-level cache
  static constexpr std::int64_t kKeyTile = kRowTile;  // keys per product of the backward pass
  // How many columns of weights its products read for a block of `keys`.
  static std::int64_t PaddedKeys(std::int64_t keys) { return keys + kRowTile; }

  // Keys per panel of kᵀ, and what columns of a product are a multiple of.
  static std::int64_t PanelKeys() { return kTileVectors * ColumnGranule(); }
  static std::int64_t ColumnGranule() { return static_cast<std::int64_t>(hn::Lanes(hn::ScalableTag<T>())); }

  // What a thread does before and after a task.
  static void Begin() {}
  static void End() {}

  // Operands that hold n elements, and those that hold the elements of a range.
  static std::int64_t Steps(std::int64_t n) { return n; }
  static Range StepsOf(Range range) { return range; }
  static std::int64_t ElementsIn(std::int64_t steps) { return steps; }

  // Rows that a product reads of A and writes of C for `rows` of them, up to kRowTile and for any number.
  static int TileRows(std::int64_t rows) { return HWY_NAMESPACE::TileRows(static_cast<int>(rows)); }
  static std::int64_t TiledRows(std::int64_t rows) { return HWY_NAMESPACE::TiledRows(rows); }

  // A product of `columns` columns, a multiple of the granule.
  template <Into kInto>
  static HWY_INLINE void Multiply(const Product<T>& product, std::ptrdiff_t columns) {
    MultiplyColumns<kInto>(product, columns);
  }
  // The same for columns of one panel of kᵀ, which a tile is as wide as. The width is a constant, so that the compiler
  // makes a copy of the tile for it, whose loads need no register for their addresses (1 % of the time).
  template <Into kInto>
  static HWY_INLINE void MultiplyPanel(Product<T> product, std::ptrdiff_t columns) {
    product.layout = {PanelKeys()};
    MultiplyMatrices<kInto, false>(product, columns / ColumnGranule());
  }
  // Calls f(c, width) for some columns after the other: those of B that stay in the first-level cache for all rows.
  template <class F>
  static HWY_INLINE void ForColumns(std::ptrdiff_t columns, const F& f) {
    HWY_NAMESPACE::ForColumns<T>(columns,
                                 [&](std::ptrdiff_t c, std::ptrdiff_t vectors) { f(c, vectors * ColumnGranule()); });
  }
  static constexpr Into kScores = Into::kSet;  // the scale is in q

  // A query, times its factor. Returns whether it can be multiplied.
  template <class S>
  static HWY_INLINE bool LoadQuery(const S* from, std::int64_t stride, std::int64_t d_k, T factor, T* to) {
    LoadRow<T>(from, stride, d_k, factor, to);
    return true;
  }
  // The layout that the forward pass packs kᵀ and v in, B of so many steps and with rows of so many columns.
  static Layout PackedLayout(std::int64_t, std::int64_t columns) { return {columns}; }
  static void PackPanel(DType dtype, const Rows& k, std::int64_t j, std::int64_t keys, std::int64_t d_k,
                        const Layout& layout, T* panel) {
    HWY_NAMESPACE::PackPanel<T>(dtype, k, j, keys, d_k, layout.row, panel);
  }
  // Values [block.begin, block.end), a row each. Returns whether all are finite.
  static bool PackValues(DType dtype, const Rows& v, Range block, std::int64_t, std::int64_t d_v, const Layout& layout,
                         T* to) {
    return HWY_NAMESPACE::PackValues<T>(dtype, v, block.begin, block.end - block.begin, d_v, layout.row, to);
  }
  // Packed value x becomes 0.
  static void HideValue(std::int64_t x, std::int64_t columns, const Layout& layout, T* packed) {
    std::fill_n(packed + x * layout.row, columns, T{0});
  }

  // A row of weights, which takes the place of its scores: two vectors of it, and its operands.
  template <class D, class V = hn::Vec<D>>
  static HWY_INLINE void StoreWeights(D d, V first, V second, T* s, std::int64_t x) {
    hn::Store(first, d, s + x);
    hn::Store(second, d, s + x + static_cast<std::int64_t>(hn::Lanes(d)));
  }
  static void RoundWeights(Range, T*) {}
  static bool AreFinite(const T* values, std::int64_t rows, std::int64_t columns, std::int64_t ld) {
    return AllFinite(values, rows, RoundUp(columns, static_cast<std::int64_t>(hn::Lanes(hn::ScalableTag<T>()))), ld);
  }
  static const T* Weights(const T* s) { return s; }

  // Element c of a row of operands, and of column c the element of key y among packed values.
  static T At(const T* row, std::int64_t c) { return row[c]; }
  static T Packed(const T* values, const Layout& layout, std::int64_t y, std::int64_t c) {
    return values[layout.At(y, c)];
  }
};

// Rounding: how vectors of float become bf16. kDepth: pairs that a product takes at a time.
template <class Rounding, std::int64_t kDepth>
struct PairProducts {
  using T = float;
  using Operand = Pair;
  using Round = Rounding;
  using Queue = NoQueue;
  static constexpr bool kPairs = true, kSplits = false;
  static constexpr std::int64_t kScoresFrom = 0;
  static std::int64_t PaddedKeys(std::int64_t keys) { return RoundUp(keys, 32); }  // whole steps of a tile, too
  static std::int64_t PanelKeys() { return 64; }
  static std::int64_t ColumnGranule() { return 16; }

  static void Begin() {}
  static void End() {}

  static std::int64_t Steps(std::int64_t n) { return RoundUp(hwy::DivCeil(n, std::int64_t{2}), kDepth); }
  static Range StepsOf(Range range) {
    return range.empty() ? Range{0, 0} : Range{range.begin / (2 * kDepth) * kDepth, Steps(range.end)};
  }

  static std::int64_t ElementsIn(std::int64_t steps) { return 2 * steps; }

  template <class F>
  static HWY_INLINE void ForColumns(std::ptrdiff_t columns, const F& f) {
    for (std::ptrdiff_t c = 0; c < columns; c += 64) f(c, std::min<std::ptrdiff_t>(64, columns - c));
  }
  static constexpr Into kScores = Into::kScale;  // q is as it came, so the scale multiplies the scores

  template <class S>
  static HWY_INLINE bool LoadQuery(const S* from, std::int64_t stride, std::int64_t d_k, float, Pair* to) {
    if constexpr (std::is_same_v<S, BFloat16>) LoadPairs(from, stride, d_k, Steps(d_k), to);
    return true;
  }
  static Layout PackedLayout(std::int64_t steps, std::int64_t columns) {
    return kDepth == 1 ? Layout{columns} : Layout{kLayoutColumns, kLayoutColumns * steps};
  }
  static void PackPanel(DType, const Rows& k, std::int64_t j, std::int64_t keys, std::int64_t d_k, const Layout& layout,
                        Pair* panel) {
    PackPairPanel(k, j, keys, d_k, Steps(d_k), layout, panel);
  }
  // Values of the block as pairs of keys, counted from `first` on.
  static bool PackValues(DType, const Rows& v, Range block, std::int64_t first, std::int64_t d_v, const Layout& layout,
                         Pair* to) {
    return PackPairValues(v, block, first, StepsOf({block.begin - first, block.end - first}), d_v, layout, to);
  }
  static void HideValue(std::int64_t x, std::int64_t columns, const Layout& layout, Pair* packed) {
    for (std::int64_t c = 0; c < columns; ++c) HalfOf(packed[layout.At(x / 2, c)], x) = BFloat16{};
  }

  // Rounded weights take the first half of their scores' memory: what is written was read before.
  template <class D, class V = hn::Vec<D>>
  static HWY_INLINE void StoreWeights(D d, V first, V second, float* s, std::int64_t x) {
    Rounding::Store(d, first, second, reinterpret_cast<BFloat16*>(s) + x);
  }
  static void RoundWeights(Range computed, float* s) {
    const hn::ScalableTag<float> d;
    const auto n = static_cast<std::int64_t>(hn::Lanes(d));
    for (std::int64_t x = computed.begin; x < computed.end; x += 2 * n) {
      StoreWeights(d, hn::Load(d, s + x), hn::Load(d, s + x + n), s, x);
    }
  }
  static bool AreFinite(const Pair* values, std::int64_t rows, std::int64_t columns, std::int64_t ld) {
    const hn::ScalableTag<float> d;
    auto seen = hn::Zero(d);
    for (std::int64_t x = 0; x < rows; ++x) {
      for (std::int64_t c = 0; 2 * c < columns; c += static_cast<std::int64_t>(hn::Lanes(d))) {
        seen = SuspectWords(d, seen, hn::Load(d, reinterpret_cast<const float*>(values + x * ld + c)));
      }
    }
    return hn::AllFalse(d, hn::IsNaN(seen));
  }
  static const Pair* Weights(const float* s) { return reinterpret_cast<const Pair*>(s); }

  static float At(const Pair* row, std::int64_t c) { return to_float(HalfOf(row[c / 2], c)); }
  static float Packed(const Pair* values, const Layout& layout, std::int64_t y, std::int64_t c) {
    return to_float(HalfOf(values[layout.At(y / 2, c)], y));
  }
};

#if HWY_TARGET == HWY_AVX3
// The register tile is that of the fused multiply-adds, a step two products deep.
struct DotProducts : PairProducts<HardwareRounding, 1> {
  static constexpr bool kTransposesSums = false, kStreams = true, kLateScale = false;
  static constexpr std::int64_t kRowTile = HWY_NAMESPACE::kRowTile, kStripRows = 2 * kRowTile, kKeyTile = kRowTile;
  static int TileRows(std::int64_t rows) { return HWY_NAMESPACE::TileRows(static_cast<int>(rows)); }
  static std::int64_t TiledRows(std::int64_t rows) { return HWY_NAMESPACE::TiledRows(rows); }

  template <Into kInto>
  static HWY_INLINE void Multiply(const Product<float, Pair, Pair>& product, std::ptrdiff_t columns) {
    MultiplyColumns<kInto>(product, columns);
  }
  template <Into kInto>
  static HWY_INLINE void MultiplyPanel(const Product<float, Pair, Pair>& product, std::ptrdiff_t columns) {
    MultiplyMatrices<kInto, false>(product, columns / ColumnGranule());
  }
  static HWY_INLINE void Stream(const PairsInPlace& product) { StreamedPairSum(product); }
};
#endif

template <class P>
using ProductOf = Product<typename P::T, typename P::Operand, typename P::Operand>;

}  // namespace keel::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
