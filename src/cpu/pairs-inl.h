// bf16 in pairs, as matrix units multiply them: rounding to it, and the caller's arrays packed.
#if defined(KEEL_CPU_PAIRS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KEEL_CPU_PAIRS_INL_H_
#undef KEEL_CPU_PAIRS_INL_H_
#else
#define KEEL_CPU_PAIRS_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstdint>

#include "cpu/forward.h"
#include "cpu/gemm-inl.h"
#include "cpu/pack-inl.h"

HWY_BEFORE_NAMESPACE();
namespace keel::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

HWY_INLINE BFloat16& HalfOf(Pair& pair, std::int64_t x) { return x % 2 == 0 ? pair.even : pair.odd; }
HWY_INLINE BFloat16 HalfOf(const Pair& pair, std::int64_t x) { return x % 2 == 0 ? pair.even : pair.odd; }

// Suspect() for vectors of pairs.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V SuspectWords(D d, V seen, V words) {
  return Suspect(d, Suspect(d, seen, EvenOfWords(d, words)), OddOfWords(d, words));
}

// To nearest, ties to even, by what every target has.
struct SoftwareRounding {
  // Two vectors, one behind the other.
  template <class D, class V = hn::Vec<D>>
  static HWY_INLINE void Store(D d, V first, V second, BFloat16* to) {
    StoreTwoAs(d, first, second, to);
  }
  // Lane by lane a pair.
  template <class D, class V = hn::Vec<D>>
  static HWY_INLINE void StorePairs(D d, V even, V odd, Pair* to) {
    BFloat16 halves[2][HWY_MAX_BYTES / sizeof(float)];
    StoreAs(d, even, halves[0]);
    StoreAs(d, odd, halves[1]);
    for (std::size_t i = 0; i < hn::Lanes(d); ++i) to[i] = {halves[0][i], halves[1][i]};
  }
};

#if HWY_TARGET == HWY_AVX3
// By AVX512_BF16, which the compiler's target does not include. Denormal results become 0.
struct HardwareRounding {
  template <class D, class V = hn::Vec<D>>
  static HWY_INLINE __m512i Round(V first, V second) {
    __m512i both;
    asm("vcvtne2ps2bf16 %2, %1, %0" : "=v"(both) : "v"(second.raw), "v"(first.raw));
    return both;
  }
  template <class D, class V = hn::Vec<D>>
  static HWY_INLINE void Store(D, V first, V second, BFloat16* to) {
    _mm512_storeu_si512(to, Round<D>(first, second));
  }
  template <class D, class V = hn::Vec<D>>
  static HWY_INLINE void StorePairs(D, V even, V odd, Pair* to) {
    const __m512i order = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6,
                                           21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    _mm512_storeu_si512(to, _mm512_permutexvar_epi16(order, Round<D>(even, odd)));
  }
};
#endif

// One row of n bf16 as pairs; what is left of `steps` pairs becomes 0.
HWY_INLINE void LoadPairs(const BFloat16* from, std::int64_t stride, std::int64_t n, std::int64_t steps, Pair* to) {
  auto* const halves = reinterpret_cast<BFloat16*>(to);
  std::int64_t c = 0;
  if (stride == 1) {  // by vectors: a call of memcpy() per row would show in short calls
    const hn::ScalableTag<std::uint16_t> d;
    const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
    for (; c + lanes <= n; c += lanes) {
      hn::StoreU(hn::LoadU(d, reinterpret_cast<const std::uint16_t*>(from + c)), d,
                 reinterpret_cast<std::uint16_t*>(halves + c));
    }
  }
  for (; c < n; ++c) halves[c] = from[c * stride];
  for (; c < 2 * steps; ++c) halves[c] = BFloat16{};
}

// Keys [j, j + keys) as one panel kᵀ of `steps` pairs of columns; what is beyond d_k, or beyond `keys` to a multiple of
// 16, becomes 0.
HWY_NOINLINE inline void PackPairPanel(const Rows& k, std::int64_t j, std::int64_t keys, std::int64_t d_k,
                                       std::int64_t steps, const Layout& layout, Pair* HWY_RESTRICT panel) {
  const std::int64_t stride = k.row_stride;
  const auto* const source = static_cast<const BFloat16*>(k.data) + j * stride;
  const auto element = [&](std::int64_t x, std::int64_t c) {
    return x < keys && c < d_k ? source[x * stride + c * k.column_stride] : BFloat16{};
  };
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
  constexpr std::int64_t kColumns = 2 * kHalfRows;
  const hn::ScalableTag<float> d;
  BFloat16 tile[kVectorRows * kColumns] = {};  // for what is not whole: rows that are not there stay 0
  for (std::int64_t x = 0; x < keys; x += kVectorRows) {
    const std::int64_t rows = std::min<std::int64_t>(kVectorRows, keys - x);
    if (x > 0) std::fill(tile + rows * kColumns, std::end(tile), BFloat16{});
    for (std::int64_t c = 0; c < 2 * steps; c += kColumns) {
      FloatVector columns[kHalfRows];
      const bool side_by_side = k.column_stride == 1 && c + kColumns <= d_k;
      if (side_by_side && rows == kVectorRows) {
        LoadColumns(source + x * stride + c, stride, columns);
      } else {
        for (std::int64_t i = 0; i < rows; ++i) {
          BFloat16* const to = tile + i * kColumns;
          if (side_by_side) {
            std::copy_n(source + (x + i) * stride + c, kColumns, to);
          } else {
            for (std::int64_t y = 0; y < kColumns; ++y) to[y] = element(x + i, c + y);
          }
        }
        LoadColumns(static_cast<const BFloat16*>(tile), kColumns, columns);
      }
      for (std::int64_t i = 0; i < kHalfRows && c / 2 + i < steps; ++i) {
        hn::Store(columns[i], d, reinterpret_cast<float*>(panel + layout.At(c / 2 + i, x)));
      }
    }
  }
#else
  const std::int64_t padded = RoundUp(keys, 16);
  for (std::int64_t c = 0; c < steps; ++c) {
    for (std::int64_t x = 0; x < padded; ++x) {
      panel[layout.At(c, x)] = {element(x, 2 * c), element(x, 2 * c + 1)};
    }
  }
#endif
}

#if HWY_TARGET == HWY_AVX3
// Columns [0, d_v) of two keys as pairs, 32 at a time; returns where the rest begins. `largest` keeps the magnitudes.
HWY_INLINE std::int64_t PackTwoKeys(const BFloat16* even, const BFloat16* odd, std::int64_t d_v, const Layout& layout,
                                    Pair* to, __m512i& largest) {
  const __m512i first = _mm512_setr_epi64(0, 1, 8, 9, 2, 3, 10, 11);
  const __m512i second = _mm512_setr_epi64(4, 5, 12, 13, 6, 7, 14, 15);
  const __m512i magnitude = _mm512_set1_epi16(0x7FFF);
  std::int64_t c = 0;
  for (; c + 32 <= d_v; c += 32) {
    const __m512i x = _mm512_loadu_si512(even + c), y = _mm512_loadu_si512(odd + c);
    const __m512i low = _mm512_unpacklo_epi16(x, y), high = _mm512_unpackhi_epi16(x, y);
    _mm512_storeu_si512(to + layout.At(0, c), _mm512_permutex2var_epi64(low, first, high));
    _mm512_storeu_si512(to + layout.At(0, c + 16), _mm512_permutex2var_epi64(low, second, high));
    largest = _mm512_max_epu16(largest, _mm512_and_si512(x, magnitude));
    largest = _mm512_max_epu16(largest, _mm512_and_si512(y, magnitude));
  }
  return c;
}
#endif

// Values of `block` as `steps` of pairs of keys, counted from `first` on; keys outside the block and columns beyond d_v
// to a multiple of 16 become 0. Returns whether all are finite.
HWY_NOINLINE inline bool PackPairValues(const Rows& v, Range block, std::int64_t first, Range steps, std::int64_t d_v,
                                        const Layout& layout, Pair* HWY_RESTRICT to) {
  const hn::ScalableTag<float> d;
  const hn::RebindToUnsigned<decltype(d)> du;
  const hn::Rebind<std::uint16_t, decltype(d)> du16;
  const auto n = static_cast<std::int64_t>(hn::Lanes(d));
  const std::int64_t vectors_end = v.column_stride == 1 ? d_v / n * n : 0, columns = RoundUp(d_v, kLayoutColumns);
  auto seen = hn::Zero(d);
#if HWY_TARGET == HWY_AVX3
  __m512i largest = _mm512_setzero_si512();
#endif
  for (std::int64_t step = steps.begin; step < steps.end; ++step, to += layout.row) {
    const std::int64_t y = first + 2 * step;
    const bool has_even = y >= block.begin && y < block.end, has_odd = y + 1 >= block.begin && y + 1 < block.end;
    const auto* const even = static_cast<const BFloat16*>(v.data) + y * v.row_stride;
    const auto* const odd = even + v.row_stride;
    const auto load = [&](bool there, const BFloat16* from) {
      return there ? hn::PromoteTo(du, hn::LoadU(du16, reinterpret_cast<const std::uint16_t*>(from))) : hn::Zero(du);
    };
    std::int64_t c = 0;
#if HWY_TARGET == HWY_AVX3
    if (has_even && has_odd && v.column_stride == 1) c = PackTwoKeys(even, odd, d_v, layout, to, largest);
#endif
    for (; c < vectors_end; c += n) {
      const auto words = hn::BitCast(d, hn::Or(load(has_even, even + c), hn::ShiftLeft<16>(load(has_odd, odd + c))));
      seen = SuspectWords(d, seen, words);
      hn::Store(words, d, reinterpret_cast<float*>(to + layout.At(0, c)));
    }
    const auto at = [&](bool there, const BFloat16* from, std::int64_t x) {
      return there && x < d_v ? from[x * v.column_stride] : BFloat16{};
    };
    for (std::int64_t x = c; x < columns; ++x) to[layout.At(0, x)] = {at(has_even, even, x), at(has_odd, odd, x)};
    for (; c < columns; c += n) {
      seen = SuspectWords(d, seen, hn::Load(d, reinterpret_cast<const float*>(to + layout.At(0, c))));
    }
  }
#if HWY_TARGET == HWY_AVX3
  if (_mm512_cmpge_epu16_mask(largest, _mm512_set1_epi16(0x7F80)) != 0) return false;
#endif
  return hn::AllFalse(d, hn::IsNaN(seen));
}

#if HWY_TARGET == HWY_AVX3
// Rows of pairs of columns, as pairs of rows: to[x / 2] holds, for every column, its elements in rows x and x + 1.
// Reads an even number of rows, and whole vectors of columns.
HWY_NOINLINE inline void PairRows(const Pair* from, std::int64_t ld, std::int64_t rows, std::int64_t columns,
                                  Pair* HWY_RESTRICT to, std::int64_t ldt) {
  __m512i largest = _mm512_setzero_si512();  // unused
  for (std::int64_t x = 0; x < rows; x += 2, to += ldt) {
    const auto* const even = reinterpret_cast<const BFloat16*>(from + x * ld);
    PackTwoKeys(even, even + 2 * ld, RoundUp(columns, std::int64_t{32}), Layout{}, to, largest);
  }
}
#endif

// The columns of `rows` rows of pairs: to[c] holds column c of all rows, in pairs of rows. Rows from `rows` on become
// 0.
HWY_NOINLINE inline void TransposePairs(const Pair* from, std::int64_t ld, std::int64_t rows, std::int64_t columns,
                                        std::int64_t steps, Pair* HWY_RESTRICT to, std::int64_t ldt) {
#if HWY_TARGET == HWY_AVX3
  constexpr std::int64_t kColumns = 2 * kHalfRows;
  BFloat16 tile[kVectorRows * kColumns] = {};  // for the last rows: those that are not there stay 0
  for (std::int64_t x = 0; x < 2 * steps; x += kVectorRows) {
    const std::int64_t there = std::clamp<std::int64_t>(rows - x, 0, kVectorRows);
    if (x > 0) std::fill(tile + there * kColumns, std::end(tile), BFloat16{});
    for (std::int64_t c = 0; c < RoundUp(columns, kColumns); c += kColumns) {
      const auto* const source = reinterpret_cast<const BFloat16*>(from + x * ld) + c;
      FloatVector words[kHalfRows];
      if (there == kVectorRows) {
        LoadColumns(source, 2 * ld, words);
      } else {
        for (std::int64_t i = 0; i < there; ++i) std::copy_n(source + i * 2 * ld, kColumns, tile + i * kColumns);
        LoadColumns(static_cast<const BFloat16*>(tile), kColumns, words);
      }
      for (int i = 0; i < kHalfRows; ++i) {
        const __m512i both = _mm512_castps_si512(words[i].raw);
        auto* const even = reinterpret_cast<__m256i*>(to + (c + 2 * i) * ldt + x / 2);
        auto* const odd = reinterpret_cast<__m256i*>(to + (c + 2 * i + 1) * ldt + x / 2);
        _mm256_storeu_si256(even, _mm512_cvtepi32_epi16(both));
        _mm256_storeu_si256(odd, _mm512_cvtepi32_epi16(_mm512_srli_epi32(both, 16)));
      }
    }
  }
#else
  for (std::int64_t c = 0; c < columns; ++c) {
    for (std::int64_t x = 0; x < 2 * steps; ++x) {
      HalfOf(to[c * ldt + x / 2], x) = x < rows ? HalfOf(from[x * ld + c / 2], c) : BFloat16{};
    }
  }
#endif
}

}  // namespace keel::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
