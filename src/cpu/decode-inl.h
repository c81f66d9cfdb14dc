// Few queries over keys that are read once: decoding. Time goes into waiting for memory, so k and v are read in place
// and front to back, and what comes next is asked for on the way. The sums are those of gemm-inl.h, in the same order,
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

#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
// Vectors of keys that MR rows take at a time: the chains of one would wait for the latency of their own additions, two
// with their columns need half of 32 registers.
template <int MR>
constexpr int kStreamedVectors = HWY_TARGET == HWY_AVX3 || MR <= 2 ? 2 : 1;

// What to ask for while keys are read: the rows to come, line by line and front to back as the hardware's own
// prefetching has it. A line comes from memory `gap` elements before it is due in the first-level cache.
template <class S>
struct Coming {
  const S* row = nullptr;
  std::ptrdiff_t stride = 0, columns = 0, gap = 0, column = 0;

  HWY_INLINE void Ask(std::ptrdiff_t lines) {
    constexpr std::ptrdiff_t kLine = 64 / sizeof(S);
    for (; lines > 0; --lines) {
      AskNear(row + column);
      AskFor(row + column + gap);
      column += kLine;
      if (column >= columns) {
        column = 0;
        row += stride;
      }
    }
  }
};

// Scores of MR rows against kStreamedVectors vectors of keys; q is transposed, (d_k, MR). Columns of k are transposed
// in registers and go straight into the sums: packing them first would add a trip through memory. Bound by the ports
// that shuffle and multiply.
template <int MR, class S>
HWY_NOINLINE void StreamedScoresTile(const float* HWY_RESTRICT q, const S* HWY_RESTRICT k, std::ptrdiff_t stride,
                                     std::ptrdiff_t d_k, float* HWY_RESTRICT s, std::ptrdiff_t lds, Coming<S> coming) {
  const hn::ScalableTag<float> d;
  constexpr int kVectors = kStreamedVectors<MR>;
  constexpr std::ptrdiff_t columns = kTileColumns<S, float>;
  constexpr std::ptrdiff_t kLines = kVectors * kVectorRows * columns * static_cast<std::ptrdiff_t>(sizeof(S)) / 64;
  FloatVector sum[MR][kVectors];
  for (int r = 0; r < MR; ++r) {
    for (int v = 0; v < kVectors; ++v) sum[r][v] = hn::Zero(d);
  }
  for (std::ptrdiff_t c = 0; c < d_k; c += columns, q += columns * MR) {
    FloatVector words[kVectors][kHalfRows];
    for (int v = 0; v < kVectors; ++v) LoadColumns(k + v * kVectorRows * stride + c, stride, words[v]);
    const auto add = [&](std::ptrdiff_t i, const auto& column) {
      coming.Ask((i + 1) * kLines / columns - i * kLines / columns);  // at an even pace
      FloatVector x[kVectors];
      for (int v = 0; v < kVectors; ++v) x[v] = column(v);
      for (int r = 0; r < MR; ++r) {
        const FloatVector y = hn::Set(d, q[i * MR + r]);
        for (int v = 0; v < kVectors; ++v) sum[r][v] = hn::MulAdd(y, x[v], sum[r][v]);
      }
    };
    [&]<int... i>(std::integer_sequence<int, i...>) {  // a loop would go through memory
      if constexpr (columns == kHalfRows) {
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
    for (int v = 0; v < kVectors; ++v) hn::Store(sum[r][v], d, s + r * lds + v * kVectorRows);
  }
}

// Scores of up to kRowTile rows against `keys` keys, whole panels of them, read in place; how many keys that were. None
// where k does not lend itself to it. `q` is transposed, (d_k, TileRows(rows)).
template <class S>
HWY_INLINE std::int64_t StreamedScores(int rows, const float* q, const S* k, std::int64_t stride,
                                       std::int64_t column_stride, std::int64_t d_k, std::int64_t keys, float* s,
                                       std::ptrdiff_t lds) {
  if (column_stride != 1 || d_k % kTileColumns<S, float> != 0) return 0;
  constexpr std::int64_t kBytesBetween = 8192;
  const std::int64_t gap_keys = kBytesBetween / (d_k * static_cast<std::int64_t>(sizeof(S)));
  const auto stream = [&]<int MR>(std::integral_constant<int, MR>) {
    for (std::int64_t y = 0; y < keys; y += kStreamedVectors<MR> * kVectorRows) {
      const S* const from = k + y * stride;
      StreamedScoresTile<MR, S>(q, from, stride, d_k, s + y, lds,
                                {from + kVectorRows * stride, stride, d_k, gap_keys * stride});
    }
  };
  switch (TileRows(rows)) {
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
  return keys;
}

// The queries as StreamedScores() wants them.
HWY_INLINE void TransposeQueries(int rows, const float* q, std::ptrdiff_t ldq, std::int64_t d_k, float* columns) {
  const int tile = TileRows(rows);
  for (std::int64_t c = 0; c < d_k; ++c) {
    for (int r = 0; r < tile; ++r) columns[c * tile + r] = q[r * ldq + c];
  }
}
#endif

// Only float on AVX2 and AVX-512 has the transposes of whole vectors.
template <class T, class S>
HWY_INLINE std::int64_t StreamedScores(int, const T*, const S*, std::int64_t, std::int64_t, std::int64_t, std::int64_t,
                                       T*, std::ptrdiff_t) {
  return 0;
}
template <class T>
HWY_INLINE void TransposeQueries(int, const T*, std::ptrdiff_t, std::int64_t, T*) {}

// Scores against fewer keys than are worth packing, one after the other: the same chains, a lane each.
constexpr std::int64_t kFewKeys = 2;
template <class T, class S>
HWY_INLINE void FewScores(int rows, const T* q, std::ptrdiff_t ldq, const S* k, std::ptrdiff_t stride,
                          std::ptrdiff_t column_stride, std::ptrdiff_t d_k, std::ptrdiff_t keys, T* s,
                          std::ptrdiff_t lds) {
  const hn::CappedTag<T, 1> d;
  for (std::ptrdiff_t y = 0; y < keys; ++y, k += stride) {
    for (int r = 0; r < rows; ++r) {
      auto sum = hn::Zero(d);
      const auto add = [&](std::ptrdiff_t c) {
        sum = hn::MulAdd(hn::Set(d, q[r * ldq + c]), hn::Set(d, ToScalar<T>(k[c * column_stride])), sum);
      };
      std::ptrdiff_t c = 0;
      for (; c + 4 <= d_k; c += 4)
        add(c), add(c + 1), add(c + 2), add(c + 3);  // short enough to run beside what follows
      for (; c < d_k; ++c) add(c);
      s[r * lds + y] = hn::GetLane(sum);
    }
  }
}

// sum += p·v, where v is read once, from memory and in place: a few keys at a time, so that it is read front to back.
template <class T, class S>
HWY_INLINE void StreamedSum(int rows, const T* p, std::ptrdiff_t ldp, const S* v, std::ptrdiff_t ldv,
                            std::ptrdiff_t keys, T* sum, std::ptrdiff_t ldo, std::ptrdiff_t columns) {
  constexpr std::ptrdiff_t kKeys = 16;
  for (std::ptrdiff_t y = 0; y < keys; y += kKeys) {
    const std::ptrdiff_t some = keys - y < kKeys ? keys - y : kKeys;
    ForColumns<T>(columns, [&](std::ptrdiff_t c, std::ptrdiff_t width) {
      Product<Into::kExtend, false, T, S>(rows, p + y, ldp, v + y * ldv + c, ldv, some, nullptr, sum + c, ldo, width);
    });
  }
  if constexpr (kInPairs<2, T, S>) {
    const hn::ScalableTag<T> d;
    const auto n = static_cast<std::ptrdiff_t>(hn::Lanes(d));
    ForColumns<T>(columns, [&](std::ptrdiff_t c, std::ptrdiff_t width) {
      for (std::ptrdiff_t i = 0; width % 2 == 0 && i < rows * width; i += 2) {
        T* const two = sum + i / width * ldo + c + i % width * n;
        hn::StoreInterleaved2(hn::Load(d, two), hn::Load(d, two + n), d, two);
      }
    });
  }
}

}  // namespace keel::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
