// Few queries over keys that are read once: decoding. Time goes into waiting for memory, so k and v are read in place
// and front to back, and what comes next is prefetched. The sums are those of gemm-inl.h, in the same order,
// bit for bit: a row does not depend on how many there are.
#if defined(KEEL_CPU_DECODE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KEEL_CPU_DECODE_INL_H_
#undef KEEL_CPU_DECODE_INL_H_
#else
#define KEEL_CPU_DECODE_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "cpu/gemm-inl.h"
#include "cpu/pack-inl.h"

HWY_BEFORE_NAMESPACE();
namespace keel::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// s (rows, keys) = q·kᵀ with k read in place: keys are `stride` elements apart and their columns column_stride.
// Rows of q and s are ldq and lds apart. The scores of pairs are multiplied by `scale`.
template <class T, class S, class A = T>
struct ScoresInPlace {
  int rows = 0;  // up to kRowTile
  const A* q = nullptr;
  std::ptrdiff_t ldq = 0;
  const S* k = nullptr;
  std::ptrdiff_t stride = 0, column_stride = 0, d_k = 0, keys = 0;
  const T* scale = nullptr;  // one per row
  T* s = nullptr;
  std::ptrdiff_t lds = 0;
};

#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
// Vectors of keys that MR rows take at a time: the chains of one would wait for the latency of their own additions; two
// with their columns need half of 32 registers.
template <int MR>
constexpr int kStreamedVectors = HWY_TARGET == HWY_AVX3 || MR <= 2 ? 2 : 1;

// Prefetches the rows to come while keys are read, line by line and front to back, as the hardware's own prefetcher
// does. A line comes from memory `gap` elements before it is due in the first-level cache.
template <class S>
struct RowPrefetcher {
  const S* row = nullptr;
  std::ptrdiff_t stride = 0, columns = 0, gap = 0, column = 0;

  HWY_INLINE void Prefetch(std::ptrdiff_t lines) {
    constexpr std::ptrdiff_t kLine = 64 / sizeof(S);
    for (; lines > 0; --lines) {
      PrefetchToL1(row + column);
      PrefetchToL2(row + column + gap);
      column += kLine;
      if (column >= columns) {
        column = 0;
        row += stride;
      }
    }
  }
};

// Scores of MR rows against kStreamedVectors vectors of keys from `first` on; q is transposed, (d_k, MR) or pairs of
// it. Columns of k are transposed in registers and go straight into the sums: packing them first would add a trip
// through memory. Bound by the ports that shuffle and multiply.
template <int MR, class S, class A>
HWY_NOINLINE void StreamedScoresTile(const ScoresInPlace<float, S, A>& x, std::ptrdiff_t first, std::ptrdiff_t gap) {
  const hn::ScalableTag<float> d;
  constexpr bool kPairs = std::is_same_v<A, Pair>;
  const A* HWY_RESTRICT q = x.q;
  const S* HWY_RESTRICT const k = x.k + first * x.stride;
  float* HWY_RESTRICT const s = x.s + first;
  const std::ptrdiff_t stride = x.stride, d_k = x.d_k, lds = x.lds;
  RowPrefetcher<S> prefetcher = {k + kVectorRows * stride, stride, d_k, gap};
  constexpr int kVectors = kStreamedVectors<MR>;
  constexpr std::ptrdiff_t columns = kTileColumns<S, float>;
  constexpr std::ptrdiff_t kLines = kVectors * kVectorRows * columns * static_cast<std::ptrdiff_t>(sizeof(S)) / 64;
  FloatVector sum[MR][kVectors];
  for (int r = 0; r < MR; ++r) {
    for (int v = 0; v < kVectors; ++v) sum[r][v] = hn::Zero(d);
  }
  constexpr std::ptrdiff_t steps = kPairs ? columns / 2 : columns;
  for (std::ptrdiff_t c = 0; c < d_k; c += columns, q += steps * MR) {
    FloatVector words[kVectors][kHalfRows];
    for (int v = 0; v < kVectors; ++v) LoadColumns(k + v * kVectorRows * stride + c, stride, words[v]);
    const auto add = [&](std::ptrdiff_t i, const auto& column) {
      prefetcher.Prefetch((i + 1) * kLines / steps - i * kLines / steps);  // at an even pace
      FloatVector x[kVectors];
      for (int v = 0; v < kVectors; ++v) x[v] = column(v);
      for (int r = 0; r < MR; ++r) {
        const FloatVector y = Broadcast(d, q + i * MR + r);
        for (int v = 0; v < kVectors; ++v) sum[r][v] = MultiplyAdd<A>(y, x[v], sum[r][v]);
      }
    };
    [&]<int... i>(std::integer_sequence<int, i...>) {  // a loop would go through memory
      if constexpr (kPairs || columns == kHalfRows) {
        (add(i, [&](int v) { return words[v][i]; }), ...);
      } else {
        ((add(2 * i, [&](int v) { return EvenOfWords(d, words[v][i]); }),
          add(2 * i + 1, [&](int v) { return OddOfWords(d, words[v][i]); })),
         ...);
      }
    }
    (std::make_integer_sequence<int, kHalfRows>());
  }
  for (int r = 0; r < MR; ++r) {
    for (int v = 0; v < kVectors; ++v) {
      if constexpr (kPairs) sum[r][v] = hn::Mul(hn::Add(hn::Zero(d), sum[r][v]), hn::Set(d, x.scale[r]));  // as kScale
      hn::Store(sum[r][v], d, s + r * lds + v * kVectorRows);
    }
  }
}

#endif

// Scores against whole panels of keys; returns how many keys that were, none if k's layout does not suit. q is
// transposed, (steps, TileRows(rows)). Only float on AVX2 and AVX-512 has the transposes of whole vectors.
template <class T, class S, class A>
HWY_INLINE std::int64_t StreamedScores([[maybe_unused]] const ScoresInPlace<T, S, A>& x) {
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
  if constexpr (sizeof(T) == 4 && (!std::is_same_v<A, Pair> || std::is_same_v<S, BFloat16>)) {
    if (x.column_stride != 1 || x.d_k % kTileColumns<S, float> != 0) return 0;
    constexpr std::ptrdiff_t kBytesBetween = 8192;
    const std::ptrdiff_t gap = kBytesBetween / (x.d_k * static_cast<std::ptrdiff_t>(sizeof(S))) * x.stride;
    const auto stream = [&]<int MR>(std::integral_constant<int, MR>) {
      for (std::ptrdiff_t y = 0; y < x.keys; y += kStreamedVectors<MR> * kVectorRows) {
        StreamedScoresTile<MR>(x, y, gap);
      }
    };
    switch (TileRows(x.rows)) {
      case 1:
        stream(std::integral_constant<int, 1>());
        break;
      case 2:
        stream(std::integral_constant<int, 2>());
        break;
      case 4:
        stream(std::integral_constant<int, 4>());
        break;
      default:
        stream(std::integral_constant<int, 6>());
    }
    return x.keys;
  }
#endif
  return 0;
}

// The queries as StreamedScores() needs them.
template <class A>
HWY_INLINE void TransposeQueries(int rows, const A* q, std::ptrdiff_t ldq, std::int64_t steps, A* columns) {
  const int tile = TileRows(rows);
  for (std::int64_t c = 0; c < steps; ++c) {
    for (int r = 0; r < tile; ++r) columns[c * tile + r] = q[r * ldq + c];
  }
}

// Scores against too few keys to be worth packing, one at a time: the same chains, one lane each.
constexpr std::int64_t kKeysNotWorthPacking = 2;
template <class T, class S, class A>
HWY_INLINE void ScoresOneByOne(const ScoresInPlace<T, S, A>& x) {
  const hn::CappedTag<T, 1> d;
  constexpr bool kPairs = std::is_same_v<A, Pair>;
  const S* k = x.k;
  const auto column = [&](std::ptrdiff_t c) {
    if constexpr (kPairs) {
      const Pair pair = {k[2 * c * x.column_stride], 2 * c + 1 < x.d_k ? k[(2 * c + 1) * x.column_stride] : BFloat16{}};
      return Broadcast(d, &pair);
    } else {
      return hn::Set(d, ToScalar<T>(k[c * x.column_stride]));
    }
  };
  const std::ptrdiff_t steps = kPairs ? (x.d_k + 1) / 2 : x.d_k;
  for (std::ptrdiff_t y = 0; y < x.keys; ++y, k += x.stride) {
    for (int r = 0; r < x.rows; ++r) {
      auto sum = hn::Zero(d);
      const auto add = [&](std::ptrdiff_t c) {
        sum = MultiplyAdd<A>(Broadcast(d, x.q + r * x.ldq + c), column(c), sum);
      };
      std::ptrdiff_t c = 0;
      for (; c + 4 <= steps; c += 4)
        add(c), add(c + 1), add(c + 2), add(c + 3);  // short enough to overlap with what follows
      for (; c < steps; ++c) add(c);
      if constexpr (kPairs) sum = hn::Mul(hn::Add(hn::Zero(d), sum), hn::Set(d, x.scale[r]));
      x.s[r * x.lds + y] = hn::GetLane(sum);
    }
  }
}

#if HWY_TARGET == HWY_AVX3
// How far ahead rows of v are prefetched into the first-level cache; into the second-level cache, twice as far.
constexpr std::ptrdiff_t kStreamedRowsAhead = 16;

// MR rows of a product that extends sums, over 8 vectors of columns: two full rows of d_v = 128 fit the registers, and
// a row of v is read from its first line to its last, which is what the hardware's prefetchers follow. The first rows
// of a run of keys prefetch for all.
template <int MR>
HWY_NOINLINE void StreamedRowsTile(const Product<float>& x, bool is_first) {
  const hn::ScalableTag<float> d;
  constexpr int kVectors = 8;
  FloatVector sum[MR][kVectors];
  for (int r = 0; r < MR; ++r) {
    for (int v = 0; v < kVectors; ++v) sum[r][v] = hn::Load(d, x.c + r * x.ldc + v * kVectorRows);
  }
  const float* row = x.b;
  for (std::ptrdiff_t y = 0; y < x.k; ++y, row += x.layout.row) {
    FloatVector values[kVectors];
    for (int v = 0; v < kVectors; ++v) values[v] = hn::LoadU(d, row + v * kVectorRows);
    for (int v = 0; is_first && v < kVectors; ++v) {
      const float* const ahead = row + kStreamedRowsAhead * x.layout.row + v * kVectorRows;
      PrefetchToL1(ahead);
      PrefetchToL2(ahead + kStreamedRowsAhead * x.layout.row);
    }
    for (int r = 0; r < MR; ++r) {
      const FloatVector p = hn::Set(d, x.a[r * x.lda + y]);
      for (int v = 0; v < kVectors; ++v) sum[r][v] = hn::MulAdd(p, values[v], sum[r][v]);
    }
  }
  for (int r = 0; r < MR; ++r) {
    for (int v = 0; v < kVectors; ++v) hn::Store(sum[r][v], d, x.c + r * x.ldc + v * kVectorRows);
  }
}

// c += a·b for 8 vectors of columns.
HWY_INLINE void StreamRows(const Product<float>& product) {
  for (int r = 0; r < product.rows; r += 2) {
    Product<float> part = product;
    part.a += r * part.lda;
    part.c += r * part.ldc;
    if (product.rows - r == 1) {
      StreamedRowsTile<1>(part, r == 0);
    } else {
      StreamedRowsTile<2>(part, r == 0);
    }
  }
}
#endif

// c += a·b = p·v for `columns` columns, where v is read once, from memory and in place: a few keys at a time, so that
// it is read front to back.
template <class T, class S>
HWY_INLINE void StreamedSum(const Product<T, S>& product, std::ptrdiff_t columns) {
  constexpr std::ptrdiff_t kKeys = 16;
  for (std::ptrdiff_t y = 0; y < product.k; y += kKeys) {
#if HWY_TARGET == HWY_AVX3
    if constexpr (std::is_same_v<T, float> && std::is_same_v<S, float>) {
      // Not where rows lie apart: prefetchers do not follow from one to the next.
      if (columns % (8 * kVectorRows) == 0 && product.layout.row == columns) {
        for (std::ptrdiff_t c = 0; c < columns; c += 8 * kVectorRows) {
          Product<float> part = product;
          part.a += y;
          part.b += y * product.layout.row + c;
          part.c += c;
          part.k = product.k - y < kKeys ? product.k - y : kKeys;
          StreamRows(part);
        }
        continue;
      }
    }
#endif
    ForColumns<T>(columns, [&](std::ptrdiff_t c, std::ptrdiff_t width) {
      Product<T, S> part = product;
      part.a += y;
      part.b += y * product.layout.row + c;
      part.c += c;
      part.k = product.k - y < kKeys ? product.k - y : kKeys;
      MultiplyMatrices<Into::kExtend, false>(part, width);
    });
  }
  if constexpr (kInPairs<2, T, S>) {
    const hn::ScalableTag<T> d;
    const auto n = static_cast<std::ptrdiff_t>(hn::Lanes(d));
    ForColumns<T>(columns, [&](std::ptrdiff_t c, std::ptrdiff_t width) {
      for (std::ptrdiff_t i = 0; width % 2 == 0 && i < product.rows * width; i += 2) {
        T* const two = product.c + i / width * product.ldc + c + i % width * n;
        hn::StoreInterleaved2(hn::Load(d, two), hn::Load(d, two + n), d, two);
      }
    });
  }
}

// sum (rows, columns) += p·v with v read in place, `keys` of it; p (rows, ...) begins with key 0.
struct PairsInPlace {
  int rows = 0;  // up to kRowTile
  const Pair* p = nullptr;
  std::ptrdiff_t ldp = 0;
  const BFloat16* v = nullptr;
  std::ptrdiff_t stride = 0;
  Range keys;
  float* sum = nullptr;
  std::ptrdiff_t ld = 0, columns = 0;  // a multiple of 32
  const BFloat16* zeros = nullptr;     // in place of a row that makes a pair full

  struct TwoRows {
    const BFloat16 *even, *odd;
  };
  HWY_INLINE TwoRows RowsOf(std::ptrdiff_t step) const {
    const BFloat16* const row = v + 2 * step * stride;
    return {2 * step >= keys.begin ? row : zeros, 2 * step + 1 < keys.end ? row + stride : zeros};
  }
};

#if HWY_TARGET == HWY_AVX3
// 32·NP columns from `c` on of MR rows' sums over `steps`. Unpacking leaves columns in an order that StreamedPairSum()
// undoes.
template <int MR, int NP>
HWY_NOINLINE void StreamedPairTile(const PairsInPlace& x, std::ptrdiff_t c, Range steps) {
  const hn::ScalableTag<float> d;
  FloatVector sum[MR][2 * NP];
  for (int r = 0; r < MR; ++r) {
    for (int v = 0; v < 2 * NP; ++v) sum[r][v] = hn::Load(d, x.sum + r * x.ld + c + v * kVectorRows);
  }
  for (std::ptrdiff_t step = steps.begin; step < steps.end; ++step) {
    const auto rows = x.RowsOf(step);
    FloatVector words[2 * NP];
    for (int v = 0; v < NP; ++v) {
      const __m512i even = _mm512_loadu_si512(rows.even + c + 32 * v), odd = _mm512_loadu_si512(rows.odd + c + 32 * v);
      words[2 * v] = FloatVector{_mm512_castsi512_ps(_mm512_unpacklo_epi16(even, odd))};
      words[2 * v + 1] = FloatVector{_mm512_castsi512_ps(_mm512_unpackhi_epi16(even, odd))};
      PrefetchToL2(rows.even + c + 32 * v + kRowsAhead * x.stride);
      PrefetchToL2(rows.odd + c + 32 * v + kRowsAhead * x.stride);
    }
    for (int r = 0; r < MR; ++r) {
      const FloatVector p = Broadcast(d, x.p + r * x.ldp + step);
      for (int v = 0; v < 2 * NP; ++v) sum[r][v] = MultiplyAdd<Pair>(p, words[v], sum[r][v]);
    }
  }
  for (int r = 0; r < MR; ++r) {
    for (int v = 0; v < 2 * NP; ++v) hn::Store(sum[r][v], d, x.sum + r * x.ld + c + v * kVectorRows);
  }
}

// A few keys at a time, as StreamedSum().
HWY_INLINE void StreamedPairSum(const PairsInPlace& x) {
  constexpr std::int64_t kSteps = 8;
  const auto sums = [&]<int MR>(std::integral_constant<int, MR>, Range steps) {
    std::ptrdiff_t c = 0;
    for (; MR <= 4 && c + 64 <= x.columns; c += 64) StreamedPairTile<MR, 2>(x, c, steps);
    for (; c < x.columns; c += 32) StreamedPairTile<MR, 1>(x, c, steps);
  };
  const Range all = {x.keys.begin / 2, (x.keys.end + 1) / 2};
  for (std::int64_t step = all.begin; step < all.end; step += kSteps) {
    const Range steps = {step, step + kSteps < all.end ? step + kSteps : all.end};
    switch (TileRows(x.rows)) {
      case 1:
        sums(std::integral_constant<int, 1>(), steps);
        break;
      case 2:
        sums(std::integral_constant<int, 2>(), steps);
        break;
      case 4:
        sums(std::integral_constant<int, 4>(), steps);
        break;
      default:
        sums(std::integral_constant<int, 6>(), steps);
    }
  }
  const __m512i first = _mm512_setr_epi64(0, 1, 8, 9, 2, 3, 10, 11);
  const __m512i second = _mm512_setr_epi64(4, 5, 12, 13, 6, 7, 14, 15);
  for (int r = 0; r < x.rows; ++r) {
    for (std::ptrdiff_t c = 0; c < x.columns; c += 32) {
      float* const at = x.sum + r * x.ld + c;
      const __m512i low = _mm512_load_si512(at), high = _mm512_load_si512(at + kVectorRows);
      _mm512_store_si512(at, _mm512_permutex2var_epi64(low, first, high));
      _mm512_store_si512(at + kVectorRows, _mm512_permutex2var_epi64(low, second, high));
    }
  }
}
#endif

}  // namespace keel::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
