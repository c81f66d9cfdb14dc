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
// Scores of MR rows against a vector of keys; q is transposed, (d_k, MR). Squares of k are transposed in registers and
// go straight into the sums. A square takes as many shuffles as MR = 4 rows take multiply-adds; packing it first would
// add a trip through memory.
template <int MR, class S>
HWY_NOINLINE void StreamedScoresTile(const float* HWY_RESTRICT q, const S* HWY_RESTRICT k, std::ptrdiff_t stride,
                                     std::ptrdiff_t d_k, float* HWY_RESTRICT s, std::ptrdiff_t lds,
                                     const std::byte* ahead) {
  const hn::ScalableTag<float> d;
  constexpr std::ptrdiff_t columns = kSquareColumns<S, float>;
  FloatVector sum[MR];
  for (int r = 0; r < MR; ++r) sum[r] = hn::Zero(d);
  const auto add = [&](const float* at, FloatVector column) {
    for (int r = 0; r < MR; ++r) sum[r] = hn::MulAdd(hn::Set(d, at[r]), column, sum[r]);
  };
  for (std::ptrdiff_t c = 0; c < d_k; c += columns, q += columns * MR) {
    for (int i = 0; i < kVectorRows; ++i, ahead += columns * sizeof(S)) AskFor(ahead);
    FloatVector rows[kVectorRows];
    LoadSquare(k + c, stride, rows);
    TransposeVectors(rows);
    const auto add_all = [&]<int... i>(std::integer_sequence<int, i...>) {  // a loop would go through memory
      if constexpr (columns == kVectorRows) {
        (add(q + i * MR, rows[i]), ...);
      } else {  // a word holds two columns of bf16
        const hn::RebindToUnsigned<decltype(d)> du;
        ((add(q + 2 * i * MR, hn::BitCast(d, hn::ShiftLeft<16>(hn::BitCast(du, rows[i])))),
          add(q + (2 * i + 1) * MR, hn::BitCast(d, hn::And(hn::BitCast(du, rows[i]), hn::Set(du, 0xFFFF0000u))))),
         ...);
      }
    };
    add_all(std::make_integer_sequence<int, kVectorRows>());
  }
  for (int r = 0; r < MR; ++r) hn::Store(sum[r], d, s + r * lds);
}

// Scores of up to kRowTile rows against the whole vectors of `keys` keys, read in place; how many keys that were. None
// where k does not lend itself to it. `columns` has room for kRowTile·d_k elements.
template <class S>
HWY_INLINE std::int64_t StreamedScores(int rows, const float* q, std::ptrdiff_t ldq, float* columns, const S* k,
                                       std::int64_t stride, std::int64_t column_stride, std::int64_t d_k,
                                       std::int64_t keys, float* s, std::ptrdiff_t lds) {
  if (column_stride != 1 || d_k % kSquareColumns<S, float> != 0) return 0;
  const int tile = rows == 3 ? 4 : rows == 5 ? 6 : rows;
  for (std::int64_t c = 0; c < d_k; ++c) {
    for (int r = 0; r < tile; ++r) columns[c * tile + r] = q[r * ldq + c];
  }
  constexpr std::int64_t kBytesAhead = 8192;
  const std::int64_t ahead_keys =
      std::max<std::int64_t>(kBytesAhead / (d_k * static_cast<std::int64_t>(sizeof(S))), kVectorRows);
  std::int64_t y = 0;
  for (; y + kVectorRows <= keys; y += kVectorRows) {
    const S* const from = k + y * stride;
    const auto* const ahead = reinterpret_cast<const std::byte*>(from + ahead_keys * stride);
    switch (tile) {
      case 1:
        StreamedScoresTile<1, S>(columns, from, stride, d_k, s + y, lds, ahead);
        break;
      case 2:
        StreamedScoresTile<2, S>(columns, from, stride, d_k, s + y, lds, ahead);
        break;
      case 4:
        StreamedScoresTile<4, S>(columns, from, stride, d_k, s + y, lds, ahead);
        break;
      default:
        StreamedScoresTile<6, S>(columns, from, stride, d_k, s + y, lds, ahead);
    }
  }
  return y;
}
#endif

// Only float on AVX2 and AVX-512 has squares of whole vectors to transpose.
template <class T, class S>
HWY_INLINE std::int64_t StreamedScores(int, const T*, std::ptrdiff_t, T*, const S*, std::int64_t, std::int64_t,
                                       std::int64_t, std::int64_t, T*, std::ptrdiff_t) {
  return 0;
}

// sum += p·v, where v is read once, from memory and in place: a few keys at a time, so that it is read front to back.
template <class T, class S>
HWY_INLINE void StreamedSum(int rows, const T* p, std::ptrdiff_t ldp, const S* v, std::ptrdiff_t ldv,
                            std::ptrdiff_t keys, T* sum, std::ptrdiff_t ldo, std::ptrdiff_t vectors) {
  constexpr std::ptrdiff_t kKeys = 16;
  const auto n = static_cast<std::ptrdiff_t>(hn::Lanes(hn::ScalableTag<T>()));
  for (std::ptrdiff_t y = 0; y < keys; y += kKeys) {
    const std::ptrdiff_t some = keys - y < kKeys ? keys - y : kKeys;
    std::ptrdiff_t width = 0;
    for (std::ptrdiff_t x = 0; x < vectors; x += width) {
      width = NextWidth(vectors - x);
      Product<Into::kExtend, false, T, S>(rows, p + y, ldp, v + y * ldv + x * n, ldv, some, nullptr, sum + x * n, ldo,
                                          width);
    }
  }
}

}  // namespace keel::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
