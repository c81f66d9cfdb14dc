// The one matrix product: q·kᵀ, p·v and those of the backward pass are a few rows of A times a panel of B.
#if defined(KEEL_CPU_GEMM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KEEL_CPU_GEMM_INL_H_
#undef KEEL_CPU_GEMM_INL_H_
#else
#define KEEL_CPU_GEMM_INL_H_
#endif

#include <hwy/highway.h>

#include <bit>
#include <cstddef>

#include "cpu/convert-inl.h"

HWY_BEFORE_NAMESPACE();
namespace keel::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// The register tile: kRowTile rows by kTileVectors vectors of accumulators, which with one row of B and a broadcast of
// A fills the register file: 24 of 32 registers, or 12 of 16.
constexpr int kRowTile = 6;
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_NEON || HWY_TARGET == HWY_SVE || HWY_TARGET == HWY_SVE2
constexpr int kTileVectors = 4;
#else
constexpr int kTileVectors = 2;
#endif

// Steps per round of the loop: with four, the few rounds at d = 64 are predicted to the end. If 12 of 16
// registers hold sums, four steps in flight would spill some.
constexpr std::ptrdiff_t kSteps = kTileVectors == 4 ? 4 : 2;

// What is done with A·B. kSet: C = A·B. kAdd: C = alpha_r·C + A·B. kScale: C = alpha_r·(0 + A·B), as a kAdd to 0 that
// is then multiplied; C unaligned. kExtend: the chains of C continue, bit for bit as if the steps before had been part
// of the same call, and each step prefetches what B's row kRowsAhead steps later has; kInPairs tells how the vectors of
// C are ordered.
enum class Into { kSet, kAdd, kScale, kExtend };

constexpr std::ptrdiff_t kRowsAhead = 16;

// bf16 that extends a sum comes as words of two columns: C's vectors are the even columns of two, then the odd ones,
// until StoreInterleaved2() reorders them.
template <int NV, class T, class S>
constexpr bool kInPairs = std::is_same_v<S, BFloat16> && sizeof(T) == 4 && NV % 2 == 0;

// Two bf16, of which a product takes both in one step: Σ_k a_k·b_k with k in pairs.
struct Pair {
  BFloat16 even, odd;
};

// Where B's elements are: `row` elements from a step to the next and `tile` from kLayoutColumns columns to the next. In
// rows, unless they are in tiles for products that take tiles: then one lies behind the other, down the steps.
constexpr std::ptrdiff_t kLayoutColumns = 16;
struct Layout {
  std::ptrdiff_t row = 0, tile = kLayoutColumns;
  HWY_INLINE std::ptrdiff_t At(std::ptrdiff_t step, std::ptrdiff_t column) const {
    return step * row + column / kLayoutColumns * tile + column % kLayoutColumns;
  }
};

// Vector v of a row of B.
template <bool kPairs, int v, class D, class S>
HWY_INLINE hn::Vec<D> LoadVector(D d, const S* row) {
  const auto n = static_cast<std::ptrdiff_t>(hn::Lanes(d));
  if constexpr (std::is_same_v<S, Pair>) {
    return hn::Load(d, reinterpret_cast<const hn::TFromD<D>*>(row + v * n));
  } else if constexpr (kPairs) {
    const auto words = hn::LoadU(d, reinterpret_cast<const hn::TFromD<D>*>(row + v / 2 * 2 * n));
    return v % 2 == 0 ? EvenOfWords(d, words) : OddOfWords(d, words);
  } else {
    return LoadAs(d, row + v * n);
  }
}

// Prefetches NV vectors from `row` on.
template <int NV, class D, class S>
HWY_INLINE void PrefetchVectors(D d, const S* row) {
  constexpr std::ptrdiff_t kLine = 64 / sizeof(S);
  for (std::ptrdiff_t c = 0; c < static_cast<std::ptrdiff_t>(NV * hn::Lanes(d)); c += kLine) PrefetchToL2(row + c);
}

// An element of A in all lanes, and c + a·b. Pairs are in 32 bits of a vector of float, and are multiplied by
// AVX512_BF16; the assembler knows it where the compiler's target does not.
template <class D, class A>
HWY_INLINE hn::Vec<D> Broadcast(D d, const A* a) {
  if constexpr (std::is_same_v<A, Pair>) {
    const hn::RebindToUnsigned<D> du;
    return hn::BitCast(d, hn::Set(du, std::bit_cast<std::uint32_t>(*a)));
  } else {
    return hn::Set(d, *a);
  }
}
template <class A, class V>
HWY_INLINE V MultiplyAdd(V a, V b, V c) {
#if HWY_TARGET == HWY_AVX3
  if constexpr (std::is_same_v<A, Pair>) {
    asm("vdpbf16ps %2, %1, %0" : "+v"(c.raw) : "v"(a.raw), "v"(b.raw));
    return c;
  }
#endif
  return hn::MulAdd(a, b, c);
}

// C (rows, n) from A (rows, k) and B (k, n) of any dtype; rows of A and C are ld elements apart. C is aligned except
// for kScale, and so is B if it is of type T or of pairs.
template <class T, class S = T, class A = T>
struct Product {
  int rows = 0;  // up to kRowTile
  const A* a = nullptr;
  std::ptrdiff_t lda = 0;
  const S* b = nullptr;
  Layout layout;  // of B
  std::ptrdiff_t k = 0;
  const T* alpha = nullptr;  // one per row, for kAdd and kScale
  T* c = nullptr;
  std::ptrdiff_t ldc = 0;
};

// MR rows by NV vectors of a product, whose fields come in registers: in short calls a trip through memory would show.
// With kTransposed A is given as its transpose, (k, MR).
// Each element is one chain of fused multiply-adds in the order of k, whatever MR and NV are. Bound by the FMA ports:
// MR·NV of them against NV loads and MR broadcasts per step.
template <int MR, int NV, Into kInto, bool kTransposed, class T, class S, class A>
HWY_NOINLINE void MatrixTile(const A* HWY_RESTRICT a, std::ptrdiff_t lda, const S* HWY_RESTRICT b, std::ptrdiff_t ldb,
                             std::ptrdiff_t k, const T* HWY_RESTRICT alpha, T* HWY_RESTRICT c, std::ptrdiff_t ldc) {
  const hn::ScalableTag<T> d;
  using V = hn::Vec<decltype(d)>;
  const auto n = static_cast<std::ptrdiff_t>(hn::Lanes(d));
  const V zero = hn::Zero(d);
  constexpr bool kPairs = kInto == Into::kExtend && kInPairs<NV, T, S>;
  // Variables, not arrays: vectors of run-time length (SVE) cannot be elements.
  V c00 = zero, c01 = zero, c02 = zero, c03 = zero, c10 = zero, c11 = zero, c12 = zero, c13 = zero;
  V c20 = zero, c21 = zero, c22 = zero, c23 = zero, c30 = zero, c31 = zero, c32 = zero, c33 = zero;
  V c40 = zero, c41 = zero, c42 = zero, c43 = zero, c50 = zero, c51 = zero, c52 = zero, c53 = zero;

#define KEEL_GET(r, v) \
  if constexpr (kInto == Into::kExtend && MR > r && NV > v) c##r##v = hn::Load(d, c + r * ldc + v * n);
#define KEEL_GET_ROW(r) KEEL_GET(r, 0) KEEL_GET(r, 1) KEEL_GET(r, 2) KEEL_GET(r, 3)
  KEEL_GET_ROW(0)
  KEEL_GET_ROW(1)
  KEEL_GET_ROW(2)
  KEEL_GET_ROW(3)
  KEEL_GET_ROW(4)
  KEEL_GET_ROW(5)
#undef KEEL_GET_ROW
#undef KEEL_GET

#define KEEL_ROW(r)                                                 \
  if constexpr (MR > r) {                                           \
    const V x = Broadcast(d, a + (kTransposed ? r : r * lda));      \
    c##r##0 = MultiplyAdd<A>(x, b0, c##r##0);                       \
    if constexpr (NV > 1) c##r##1 = MultiplyAdd<A>(x, b1, c##r##1); \
    if constexpr (NV > 2) c##r##2 = MultiplyAdd<A>(x, b2, c##r##2); \
    if constexpr (NV > 3) c##r##3 = MultiplyAdd<A>(x, b3, c##r##3); \
  }
#define KEEL_STEP                                                                       \
  {                                                                                     \
    const V b0 = LoadVector<kPairs, 0>(d, b);                                           \
    const V b1 = NV > 1 ? LoadVector<kPairs, 1>(d, b) : zero;                           \
    const V b2 = NV > 2 ? LoadVector<kPairs, 2>(d, b) : zero;                           \
    const V b3 = NV > 3 ? LoadVector<kPairs, 3>(d, b) : zero;                           \
    KEEL_ROW(0)                                                                         \
    KEEL_ROW(1)                                                                         \
    KEEL_ROW(2)                                                                         \
    KEEL_ROW(3)                                                                         \
    KEEL_ROW(4)                                                                         \
    KEEL_ROW(5)                                                                         \
    a += kTransposed ? lda : 1;                                                         \
    if constexpr (kInto == Into::kExtend) PrefetchVectors<NV>(d, b + kRowsAhead * ldb); \
    b += ldb;                                                                           \
  }
  std::ptrdiff_t step = 0;
  for (; step + kSteps <= k; step += kSteps) {
    KEEL_STEP
    KEEL_STEP
    if constexpr (kSteps == 4) {
      KEEL_STEP
      KEEL_STEP
    }
  }
  for (; step < k; ++step) KEEL_STEP
#undef KEEL_STEP
#undef KEEL_ROW

#define KEEL_PUT(r, v)                                                              \
  if constexpr (MR > r && NV > v) {                                                 \
    T* const at = c + r * ldc + v * n;                                              \
    if constexpr (kInto == Into::kAdd) {                                            \
      hn::Store(hn::MulAdd(hn::Load(d, at), hn::Set(d, alpha[r]), c##r##v), d, at); \
    } else if constexpr (kInto == Into::kScale) {                                   \
      hn::StoreU(hn::Mul(hn::Add(zero, c##r##v), hn::Set(d, alpha[r])), d, at);     \
    } else {                                                                        \
      hn::Store(c##r##v, d, at);                                                    \
    }                                                                               \
  }
#define KEEL_PUT_ROW(r) KEEL_PUT(r, 0) KEEL_PUT(r, 1) KEEL_PUT(r, 2) KEEL_PUT(r, 3)
  KEEL_PUT_ROW(0)
  KEEL_PUT_ROW(1)
  KEEL_PUT_ROW(2)
  KEEL_PUT_ROW(3)
  KEEL_PUT_ROW(4)
  KEEL_PUT_ROW(5)
#undef KEEL_PUT_ROW
#undef KEEL_PUT
}

// Rows that a tile computes for `rows` ≤ kRowTile of them: A and C have room for as many.
HWY_INLINE int TileRows(int rows) { return rows == 3 ? 4 : rows == 5 ? 6 : rows; }

// The same for any number of rows.
HWY_INLINE std::int64_t TiledRows(std::int64_t rows) {
  const int last = static_cast<int>(rows % kRowTile);
  return rows - last + TileRows(last);
}

template <int NV, Into kInto, bool kTransposed, class T, class S, class A>
HWY_INLINE void MatrixRows(const Product<T, S, A>& p) {
  switch (TileRows(p.rows)) {
    case 1:
      return MatrixTile<1, NV, kInto, kTransposed>(p.a, p.lda, p.b, p.layout.row, p.k, p.alpha, p.c, p.ldc);
    case 2:
      return MatrixTile<2, NV, kInto, kTransposed>(p.a, p.lda, p.b, p.layout.row, p.k, p.alpha, p.c, p.ldc);
    case 4:
      return MatrixTile<4, NV, kInto, kTransposed>(p.a, p.lda, p.b, p.layout.row, p.k, p.alpha, p.c, p.ldc);
    default:
      return MatrixTile<6, NV, kInto, kTransposed>(p.a, p.lda, p.b, p.layout.row, p.k, p.alpha, p.c, p.ldc);
  }
}

// A product of `vectors` ≤ kTileVectors vectors.
template <Into kInto, bool kTransposed, class T, class S, class A>
HWY_INLINE void MultiplyMatrices(const Product<T, S, A>& product, std::ptrdiff_t vectors) {
  constexpr int kThree = kTileVectors == 4 ? 3 : 2;
  switch (vectors) {
    case 1:
      return MatrixRows<1, kInto, kTransposed>(product);
    case 2:
      return MatrixRows<2, kInto, kTransposed>(product);
    case 3:
      return MatrixRows<kThree, kInto, kTransposed>(product);
    default:
      return MatrixRows<kTileVectors, kInto, kTransposed>(product);
  }
}

// How many vectors the next tile takes of those that are left: full tiles first, the rest split evenly.
HWY_INLINE std::ptrdiff_t NextWidth(std::ptrdiff_t vectors) {
  if (vectors > kTileVectors && vectors < 2 * kTileVectors) return (vectors + 1) / 2;
  return vectors < kTileVectors ? vectors : kTileVectors;
}

// Calls product(c, width) for one tile's width of columns after the other, `width` in vectors.
template <class T, class F>
HWY_INLINE void ForColumns(std::ptrdiff_t columns, const F& product) {
  const auto n = static_cast<std::ptrdiff_t>(hn::Lanes(hn::ScalableTag<T>()));
  for (std::ptrdiff_t c = 0, width = 0; c < columns; c += width * n) {
    width = NextWidth((columns - c) / n);
    product(c, width);
  }
}

// A product of any number of columns, whole vectors.
template <Into kInto, class T, class S, class A>
HWY_INLINE void MultiplyColumns(const Product<T, S, A>& product, std::ptrdiff_t columns) {
  ForColumns<T>(columns, [&](std::ptrdiff_t c, std::ptrdiff_t width) {
    Product<T, S, A> part = product;
    part.b += c;
    part.c += c;
    MultiplyMatrices<kInto, false>(part, width);
  });
}

}  // namespace keel::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
