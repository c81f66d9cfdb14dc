// Products of floats by tiles of bf16: each float is split in three (split-inl.h), and so are the weights. Six products
// of parts, summed in f32, have the accuracy of f32 at a sixth of the rate of the unit.
#if defined(KEEL_CPU_SPLIT_PRODUCTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KEEL_CPU_SPLIT_PRODUCTS_INL_H_
#undef KEEL_CPU_SPLIT_PRODUCTS_INL_H_
#else
#define KEEL_CPU_SPLIT_PRODUCTS_INL_H_
#endif

#include <hwy/highway.h>

#include <cstdint>
#include <type_traits>

#include "cpu/split-inl.h"
#include "cpu/tile_products-inl.h"

HWY_BEFORE_NAMESPACE();
namespace keel::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <class Tiles>
struct SplitProducts : TileMultiply<Tiles, kSplitParts> {
  using T = float;
  using Operand = Pair;
  static constexpr bool kPairs = true, kSplits = true;
  // Weights take half as much memory as the scores they come from and begin so much before them that a group of
  // weights never reaches a score that has not been read.
  static constexpr std::int64_t kScoresFrom = kSplitKeys / 2 + kGroup;
  static constexpr Into kScores = Into::kScale;  // q is as it came, so the scale multiplies the scores
  static std::int64_t PanelKeys() { return 64; }
  static std::int64_t ColumnGranule() { return 16; }

  static std::int64_t Steps(std::int64_t n) { return hwy::DivCeil(n, kGroup) * kGroupPairs; }
  static Range StepsOf(Range range) {
    return range.empty() ? Range{0, 0} : Range{range.begin / kGroup * kGroupPairs, Steps(range.end)};
  }
  static std::int64_t ElementsIn(std::int64_t steps) { return steps / kGroupPairs * kGroup; }

  template <class S>
  static HWY_INLINE bool LoadQuery(const S* from, std::int64_t stride, std::int64_t d_k, float, Pair* to) {
    if constexpr (std::is_same_v<S, float>) return LoadSplit(from, stride, d_k, to);
    return true;
  }
  static Layout PackedLayout(std::int64_t steps, std::int64_t) { return {kLayoutColumns, kLayoutColumns * steps}; }
  static bool PackPanel(const Rows& k, std::int64_t j, std::int64_t keys, std::int64_t d_k, const Layout& layout,
                        Pair* panel, std::uint8_t* apart) {
    return PackSplitPanel(k, j, keys, d_k, layout, panel, apart);
  }
  static bool PackValues(const Rows& v, Range block, std::int64_t first, std::int64_t d_v, const Layout& layout,
                         Pair* to, std::uint8_t* apart) {
    const Range steps = StepsOf({block.begin - first, block.end - first});
    return PackSplitValues(v, block, first, steps, d_v, layout, to, apart);
  }

  template <class D, class V = hn::Vec<D>>
  static HWY_INLINE void StoreWeights([[maybe_unused]] D d, V first, V second, float* s, std::int64_t x) {
    auto* const to = reinterpret_cast<Pair*>(s - kScoresFrom) + x / kGroup * kGroupPairs;
#if HWY_TARGET == HWY_AVX3
    const SplitWords words = SplitPairs(first.raw, second.raw);
    for (std::int64_t i = 0; i < kSplitParts; ++i) _mm512_storeu_si512(to + i * kPartPairs, words.part[i]);
#else
    constexpr auto kMost = static_cast<std::int64_t>(hn::MaxLanes(D()));
    const auto n = static_cast<std::int64_t>(hn::Lanes(d));
    float weights[2 * kMost];
    hn::StoreU(first, d, weights);
    hn::StoreU(second, d, weights + n);
    for (std::int64_t y = 0; y < 2 * n; ++y) {
      float parts[kSplitParts];
      SplitOne(weights[y], parts);
      const std::int64_t at = (x + y) % kGroup;
      for (std::int64_t i = 0; i < kSplitParts; ++i) {
        Pair& pair = to[i * kPartPairs + at % kPartPairs];
        (at < kPartPairs ? pair.even : pair.odd) = UpperHalf(parts[i]);
      }
    }
#endif
  }
  static void RoundWeights(Range computed, float* s) {
    const hn::ScalableTag<float> d;
    const auto n = static_cast<std::int64_t>(hn::Lanes(d));
    for (std::int64_t x = computed.begin; x < computed.end; x += 2 * n) {
      StoreWeights(d, hn::Load(d, s + x), hn::Load(d, s + x + n), s, x);
    }
  }
  static const Pair* Weights(const float* s) { return reinterpret_cast<const Pair*>(s - kScoresFrom); }

  // The weight of key y, from its parts.
  static float WeightAt(const float* s, std::int64_t y) {
    const Pair* const group = Weights(s) + y / kGroup * kGroupPairs + y % kPartPairs;
    const auto part = [&](std::int64_t i) { return to_float(HalfOf(group[i * kPartPairs], y / kPartPairs)); };
    return part(0) + (part(1) + part(2));
  }
};

}  // namespace keel::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
