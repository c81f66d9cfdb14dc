// The sums over rows that become dk and dv: dv += pᵀ·do and dk += dsᵀ·q for a block of keys.
#if defined(KEEL_CPU_BACKWARD_KEYS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KEEL_CPU_BACKWARD_KEYS_INL_H_
#undef KEEL_CPU_BACKWARD_KEYS_INL_H_
#else
#define KEEL_CPU_BACKWARD_KEYS_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstdint>

#include "cpu/backward_scratch-inl.h"
#include "cpu/gemm-inl.h"
#include "cpu/products-inl.h"

HWY_BEFORE_NAMESPACE();
namespace keel::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// What a block of rows adds: weights times values.
template <class P>
struct KeyTerms {
  const typename P::T* weights;  // (rows, ldw), or pairs of rows (rows / 2, ldw)
  std::int64_t ldw;
  const typename P::Operand* values;  // (rows, ld)
  std::int64_t ld;
  bool finite;                                   // all values
  const typename P::Operand* factors = nullptr;  // for pairs: the values as products take them, see KeyGradients
  std::int64_t ldf = 0;
};

// Sums of `d` columns. Products that can read their left operand, the weights, by columns have the sums as rows of
// keys, (keys, ld); where weights are in pairs of rows, so are the values. Other products keep the sums transposed, (d,
// lds): the weights are the right operand, and the few values are transposed to be the left one.
template <class P>
class KeyGradients {
 public:
  using T = typename P::T;

  KeyGradients(std::int64_t d, std::int64_t ld, const BackwardScratch<P>& scratch, T* sums)
      : d_(d), ld_(P::kTransposesSums ? scratch.lds : ld), scratch_(scratch), sums_(sums) {}

  void Clear(std::int64_t keys) {
    if constexpr (P::kTransposesSums) {
      const hn::ScalableTag<T> d;
      const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
      const std::int64_t columns = RoundUp(keys, scratch_.granule), ld = ld_;  // what AddTransposed() adds to
      T* const end = sums_ + d_ * ld;
      for (std::int64_t y = 0; y < columns; y += lanes) {
        for (T* row = sums_; row < end; row += ld) hn::Store(hn::Zero(d), d, row + y);
      }
    } else {
      std::fill_n(sums_, P::TiledRows(keys) * ld_, T{0});
    }
  }

  // The rows that scratch.rows names for every tile of keys. The values stay in the first-level cache for all keys.
  void Add(const KeyTerms<P>& x, std::int64_t keys) {
    if constexpr (P::kTransposesSums) {
      AddTransposed(x, keys);
    } else {
      static_assert(P::kKeyTile <= kRowTile);  // keys are rows of the register tile
      const auto* const factors = P::kPairs ? x.factors : x.values;
      const std::int64_t ldf = P::kPairs ? x.ldf : x.ld;
      ForColumns<T>(RoundUp(d_, scratch_.granule), [&](std::int64_t c, std::int64_t width) {
        for (std::int64_t y = 0; y < keys; y += P::kKeyTile) {
          const Range seen = scratch_.rows[y / P::kKeyTile];
          if (seen.empty()) continue;
          const Range steps = P::StepsOf(seen);
          const ProductOf<P> tile = {.rows = static_cast<int>(std::min<std::int64_t>(P::kKeyTile, keys - y)),
                                     .a = P::Weights(x.weights) + steps.begin * x.ldw + y,
                                     .lda = x.ldw,
                                     .b = factors + steps.begin * ldf + c,
                                     .layout = {ldf},
                                     .k = steps.end - steps.begin,
                                     .alpha = scratch_.ones,
                                     .c = sums_ + y * ld_ + c,
                                     .ldc = ld_};
          MultiplyMatrices<Into::kAdd, true>(tile, width);
        }
      });
    }
  }

  // One row's share of one key.
  void AddOne(const KeyTerms<P>& x, std::int64_t row, std::int64_t y) {
    const T weight = WeightOf(x, row, y);
    for (std::int64_t c = 0; c < d_; ++c) {
      sums_[P::kTransposesSums ? c * ld_ + y : y * ld_ + c] += weight * P::At(x.values + row * x.ld, c);
    }
  }

  // The sums of key y, valid until the next call; keys come in order.
  const T* Row(std::int64_t y) const {
    if constexpr (P::kTransposesSums) {
      constexpr std::int64_t kKeys = kTileColumns<T, T>, kColumns = kTileKeys<T>;
      const std::int64_t ld = RoundUp(d_, scratch_.granule);
      for (std::int64_t c = 0; y % kKeys == 0 && c < d_; c += kColumns) {
        TransposeTile(sums_ + c * ld_ + y, ld_, scratch_.key_rows + c, ld);
      }
      return scratch_.key_rows + y % kKeys * ld;
    } else {
      return sums_ + y * ld_;
    }
  }

 private:
  static T WeightOf(const KeyTerms<P>& x, std::int64_t row, std::int64_t y) {
    if constexpr (P::kPairs) {
      return to_float(HalfOf(P::Weights(x.weights)[row / 2 * x.ldw + y], row));
    } else {
      return x.weights[row * x.ldw + y];
    }
  }

  void AddTransposed(const KeyTerms<P>& x, std::int64_t keys) {
    for (std::int64_t y = 0; y < keys; y += P::kKeyTile) {
      const Range seen = scratch_.rows[y / P::kKeyTile];
      if (seen.empty()) continue;
      const Range steps = P::StepsOf(seen);
      for (std::int64_t c = 0; c < d_; c += P::kRowTile) {
        const ProductOf<P> tile = {.rows = static_cast<int>(std::min<std::int64_t>(P::kRowTile, d_ - c)),
                                   .a = x.factors + c * x.ldf + steps.begin,
                                   .lda = x.ldf,
                                   .b = P::Weights(x.weights) + steps.begin * x.ldw + y,
                                   .layout = {x.ldw},
                                   .k = steps.end - steps.begin,
                                   .alpha = scratch_.ones,
                                   .c = sums_ + c * ld_ + y,
                                   .ldc = ld_};
        P::template Multiply<Into::kAdd>(tile, RoundUp(std::min(P::kKeyTile, keys - y), scratch_.granule));
      }
    }
  }

  const std::int64_t d_, ld_;
  const BackwardScratch<P>& scratch_;
  T* const sums_;
};

}  // namespace keel::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
