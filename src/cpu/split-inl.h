// Floats as sums of three bf16, for a unit that multiplies bf16: the 8 leading bits, the next 8, the last 8. Each part
// is exact, so nothing of a float is lost, except below 2^-126, where the unit takes numbers for 0.
//
// A group of 32 elements becomes three parts of 16 pairs, high to low; pair i holds elements i and 16 + i.
//
// Rows of q, k and v whose largest magnitude is not within [2^-48, 2^48) are not split: those with infinities or NaN,
// of which the parts' differences would be NaN, those whose products might overflow, and those of which the unit might
// lose more than rounding does. Their packed form is 0, and what it would have contributed is computed apart
// (apart-inl.h).
#if defined(KEEL_CPU_SPLIT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KEEL_CPU_SPLIT_INL_H_
#undef KEEL_CPU_SPLIT_INL_H_
#else
#define KEEL_CPU_SPLIT_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <bit>
#include <cstdint>

#include "cpu/gemm-inl.h"
#include "cpu/pack-inl.h"
#include "cpu/pairs-inl.h"

HWY_BEFORE_NAMESPACE();
namespace keel::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

constexpr std::int64_t kSplitParts = 3;
constexpr std::int64_t kSplitKeys = 256;                        // the most of a block
constexpr std::int64_t kGroup = 32;                             // elements
constexpr std::int64_t kPartPairs = kGroup / 2;                 // of a group and part
constexpr std::int64_t kGroupPairs = kSplitParts * kPartPairs;  // of a group
constexpr std::uint32_t kSplitLeast = (127u - 48) << 23;        // the bits of 2^-48
constexpr std::uint32_t kSplitMost = (127u + 48) << 23;         // and of 2^48
constexpr std::uint32_t kUpperHalf = 0xFFFF0000u;

// Whether a row of n floats is split.
HWY_INLINE bool Splits(const float* row, std::int64_t stride, std::int64_t n) {
  const hn::ScalableTag<std::int32_t> d;  // magnitudes are in the order of their bits
  const auto magnitude = hn::Set(d, 0x7FFFFFFF);
  auto most = hn::Zero(d);
  std::int64_t c = 0;
  if (stride == 1) {
    c = ForVectors(d, n, [&](std::int64_t x) {
      most = hn::Max(most, hn::And(hn::LoadU(d, reinterpret_cast<const std::int32_t*>(row + x)), magnitude));
    });
  }
  auto largest = static_cast<std::uint32_t>(hn::GetLane(hn::MaxOfLanes(d, most)));
  for (; c < n; ++c) largest = std::max(largest, std::bit_cast<std::uint32_t>(row[c * stride]) & 0x7FFFFFFFu);
  return largest == 0 || (largest >= kSplitLeast && largest < kSplitMost);
}

// The parts of floats, each a float whose lower half is 0.
HWY_INLINE void SplitOne(float x, float (&parts)[kSplitParts]) {
  for (float& part : parts) {
    part = std::bit_cast<float>(std::bit_cast<std::uint32_t>(x) & kUpperHalf);
    x -= part;
  }
}
HWY_INLINE BFloat16 UpperHalf(float x) { return {static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(x) >> 16)}; }

#if HWY_TARGET == HWY_AVX3
struct SplitWords {
  __m512i part[kSplitParts];
};

// Pairs of first and second, lane by lane.
HWY_INLINE SplitWords SplitPairs(__m512 first, __m512 second) {
  SplitWords words;
  const __m512i upper = _mm512_set1_epi32(static_cast<int>(kUpperHalf));
  for (auto& word : words.part) {
    const __m512i a = _mm512_and_si512(_mm512_castps_si512(first), upper);
    const __m512i b = _mm512_and_si512(_mm512_castps_si512(second), upper);
    word = _mm512_or_si512(_mm512_srli_epi32(a, 16), b);
    first = _mm512_sub_ps(first, _mm512_castsi512_ps(a));
    second = _mm512_sub_ps(second, _mm512_castsi512_ps(b));
  }
  return words;
}
#endif

// Pairs of 16 floats at `first` and `second`: their parts `stride` pairs apart from `to` on.
HWY_INLINE void StoreSplit(const float* first, const float* second, std::int64_t stride, Pair* to) {
#if HWY_TARGET == HWY_AVX3
  const SplitWords words = SplitPairs(_mm512_loadu_ps(first), _mm512_loadu_ps(second));
  for (std::int64_t i = 0; i < kSplitParts; ++i) _mm512_storeu_si512(to + i * stride, words.part[i]);
#else
  for (std::int64_t x = 0; x < kPartPairs; ++x) {
    float a[kSplitParts], b[kSplitParts];
    SplitOne(first[x], a);
    SplitOne(second[x], b);
    for (std::int64_t i = 0; i < kSplitParts; ++i) to[i * stride + x] = {UpperHalf(a[i]), UpperHalf(b[i])};
  }
#endif
}

// A row of n floats as groups; returns whether it is split.
HWY_INLINE bool LoadSplit(const float* from, std::int64_t stride, std::int64_t n, Pair* to) {
  const bool splits = Splits(from, stride, n);
  for (std::int64_t c = 0; c < n; c += kGroup, to += kGroupPairs) {
    const float* group = from + c;
    float copy[kGroup];
    if (stride != 1 || c + kGroup > n || !splits) {
      for (std::int64_t x = 0; x < kGroup; ++x) copy[x] = splits && c + x < n ? from[(c + x) * stride] : 0.0f;
      group = copy;
    }
    StoreSplit(group, group + kPartPairs, kPartPairs, to);
  }
  return splits;
}

// Keys [j, j + keys) as one panel kᵀ in groups of columns; what is beyond d_k, or beyond `keys` to a multiple of 16,
// becomes 0. `apart` tells which keys are not split; returns whether there are any.
HWY_NOINLINE inline bool PackSplitPanel(const Rows& k, std::int64_t j, std::int64_t keys, std::int64_t d_k,
                                        const Layout& layout, Pair* HWY_RESTRICT panel, std::uint8_t* apart) {
  constexpr std::int64_t kKeys = 16;
  const std::int64_t stride = k.row_stride;
  const auto* const source = static_cast<const float*>(k.data) + j * stride;
  bool any = false;
  for (std::int64_t x = 0; x < keys; x += kKeys) {
    bool some = false;
    for (std::int64_t y = x; y < std::min(x + kKeys, keys); ++y) {
      apart[y] = Splits(source + y * stride, k.column_stride, d_k) ? 0 : 1;
      some = some || apart[y] != 0;
    }
    any = any || some;
    for (std::int64_t c = 0; c < d_k; c += kGroup) {
      const float* from = source + x * stride + c;
      std::int64_t ld = stride;
      float copy[kKeys * kGroup];
      if (some || k.column_stride != 1 || x + kKeys > keys || c + kGroup > d_k) {
        for (std::int64_t i = 0; i < kKeys * kGroup; ++i) {
          const std::int64_t y = x + i / kGroup, column = c + i % kGroup;
          const bool there = y < keys && apart[y] == 0 && column < d_k;
          copy[i] = there ? source[y * stride + column * k.column_stride] : 0.0f;
        }
        from = copy;
        ld = kGroup;
      }
      const std::int64_t step = c / kGroup * kGroupPairs;
#if HWY_TARGET == HWY_AVX3
      for (std::int64_t half = 0; half < kPartPairs; half += kHalfRows) {
        FloatVector first[kHalfRows], second[kHalfRows];
        LoadColumns(from + half, ld, first);
        LoadColumns(from + kPartPairs + half, ld, second);
        for (std::int64_t i = 0; i < kHalfRows; ++i) {
          const SplitWords words = SplitPairs(first[i].raw, second[i].raw);
          for (std::int64_t part = 0; part < kSplitParts; ++part) {
            _mm512_storeu_si512(panel + layout.At(step + part * kPartPairs + half + i, x), words.part[part]);
          }
        }
      }
#else
      for (std::int64_t i = 0; i < kPartPairs; ++i) {
        float first[kKeys], second[kKeys];
        for (std::int64_t y = 0; y < kKeys; ++y) first[y] = from[y * ld + i], second[y] = from[y * ld + kPartPairs + i];
        StoreSplit(first, second, kPartPairs * layout.row, panel + layout.At(step + i, x));
      }
#endif
    }
  }
  return any;
}

// Values of `block` in groups of keys, counted from `first` on: those of `steps`. Keys outside the block and columns
// beyond d_v to a multiple of 16 become 0. `apart` tells which values of the block are not split; returns whether there
// are any.
HWY_NOINLINE inline bool PackSplitValues(const Rows& v, Range block, std::int64_t first, Range steps, std::int64_t d_v,
                                         const Layout& layout, Pair* HWY_RESTRICT to, std::uint8_t* apart) {
  const auto* const source = static_cast<const float*>(v.data);
  bool any = false;
  for (std::int64_t y = block.begin; y < block.end; ++y) {
    apart[y - first] = Splits(source + y * v.row_stride, v.column_stride, d_v) ? 0 : 1;
    any = any || apart[y - first] != 0;
  }
  const std::int64_t columns = RoundUp(d_v, kLayoutColumns);
  for (std::int64_t step = steps.begin; step < steps.end; step += kGroupPairs, to += kGroupPairs * layout.row) {
    for (std::int64_t i = 0; i < kPartPairs; ++i) {
      const std::int64_t y = first + step / kGroupPairs * kGroup + i;
      const auto there = [&](std::int64_t key) {
        return key >= block.begin && key < block.end && apart[key - first] == 0;
      };
      const bool has[2] = {there(y), there(y + kPartPairs)};
      for (std::int64_t c = 0; c < columns; c += kLayoutColumns) {
        float copy[2][kLayoutColumns];
        const float* row[2];
        for (std::int64_t half = 0; half < 2; ++half) {
          const float* const from = source + (y + half * kPartPairs) * v.row_stride + c * v.column_stride;
          row[half] = from;
          if (has[half] && v.column_stride == 1 && c + kLayoutColumns <= d_v) continue;
          for (std::int64_t x = 0; x < kLayoutColumns; ++x) {
            copy[half][x] = has[half] && c + x < d_v ? from[x * v.column_stride] : 0.0f;
          }
          row[half] = copy[half];
        }
        StoreSplit(row[0], row[1], kPartPairs * layout.row, to + layout.At(i, c));
      }
    }
  }
  return any;
}

}  // namespace keel::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
