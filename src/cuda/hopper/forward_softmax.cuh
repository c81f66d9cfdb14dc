#pragma once

#include "cuda/hopper/forward_terms.cuh"

// From scores to weights, block by block, with the sums that results are made of.
namespace keel::cuda::hopper {

template <class Element, class S, Terms kTerms, Statistics kStatistics>
class Softmax : protected Scores<Element, S, kTerms, kStatistics> {
 protected:
  using Base = Scores<Element, S, kTerms, kStatistics>;
  using Base::a_, Base::a_factor_, Base::add_term, Base::base_, Base::cap_row, Base::column_, Base::count_, Base::e_,
      Base::enrich, Base::f1_, Base::f2_, Base::hide, Base::kDeepest, Base::kEntropy, Base::kHidden, Base::kLinear,
      Base::kMaskedLog2, Base::kMoments, Base::kRich, Base::l_, Base::m_, Base::n_, Base::p_, Base::place, Base::s_,
      Base::visible_;
  using Base::Base;

  // Scores become weights relative to the largest score so far; a_factor_ is what earlier weights are multiplied by.
  template <bool kPartial>
  KEEL_DEVICE void softmax(const Tile& tile) {
    if constexpr (kTerms == Terms::softcap && !kPartial) {
      weigh_capped(0);
      weigh_capped(1);
      return;
    }
    if (kRich) {
      enrich(tile);
    } else {
      if constexpr (kTerms == Terms::softcap) {
        cap_row(0);
        cap_row(1);
      }
      add_term<kPartial>(tile);
      hide<kPartial>(tile);
    }
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      // Four short chains of dependent instructions, not a long one.
      float parts[4] = {kLinear ? kHidden : m_[r], kHidden, kHidden, kHidden};
#pragma unroll
      for (int j = 0; j < S::keys / 4; ++j) parts[j & 3] = fmaxf(parts[j & 3], s_[j / 2 * 4 + 2 * r + (j & 1)]);
      float largest = fmaxf(fmaxf(parts[0], parts[1]), fmaxf(parts[2], parts[3]));
      if (kLinear) largest = fmaxf(m_[r], largest + base_[r]);
      const float reference = raise(r, quad_max(largest));
      weigh<kPartial>(r, kLinear ? fmaf(-base_[r], a_.scale_log2, reference) : reference);
    }
    if (kTerms == Terms::dropout || (kRich && a_.call.dropout > 0)) drop(tile);
  }

  // To a new largest score. Returns it in units of log 2.
  KEEL_DEVICE float raise(int r, float largest) {
    // Rounded, so that a largest score that stays the largest leaves earlier weights as they are.
    const float scale = kRich ? 1.0f : a_.scale_log2, before = __fmul_rn(m_[r], scale);
    const float reference = largest <= kHidden ? 0.0f : __fmul_rn(largest, scale);
    a_factor_[r] = ptx::exp2_fast(before - reference);
    if (kMoments && count_[r] > 0) {
      const float step = before - reference, number = static_cast<float>(count_[r]);
      f2_[r] = fmaf(step, fmaf(number, step, 2.0f * f1_[r]), f2_[r]);
      f1_[r] = fmaf(number, step, f1_[r]);
    }
    if (kEntropy) e_[r] = a_factor_[r] * fmaf(l_[r], fmaxf(before - reference, kDeepest), e_[r]);
    m_[r] = largest;
    l_[r] *= a_factor_[r];
    return reference;
  }

  template <bool kPartial>
  KEEL_DEVICE void weigh(int r, float reference) {
    const float scale = kRich ? 1.0f : a_.scale_log2;
    float sum = 0;
#pragma unroll
    for (int j = 0; j < S::keys / 4; ++j) {
      float& y = s_[j / 2 * 4 + 2 * r + (j & 1)];
      float x = fmaf(y, scale, -reference);
      if (kMoments && (kRich ? y > kMaskedLog2 : !kPartial || y != kHidden)) {
        f1_[r] += x;
        f2_[r] = fmaf(x, x, f2_[r]);
        if (kRich || kPartial) ++count_[r];
      }
      if (kMoments && kRich && y > kHidden) ++visible_[r];
      y = ptx::exp2_fast(x);
      sum += y;
      if (kEntropy) {
        if (kRich) x = fmaxf(x, kDeepest);  // 0 · −inf would be NaN
        e_[r] = fmaf(y, x, e_[r]);
      }
    }
    l_[r] += sum;
    if (kMoments && !(kRich || kPartial)) count_[r] += S::keys / 4;
  }

  // With a softcap, which leaves the largest score the largest. A thread whose scores of the row are all near 0 takes
  // the short way; no other row has a say in it.
  KEEL_DEVICE void weigh_capped(int r) {
    float high[2] = {-kInfinity, -kInfinity}, low[2] = {kInfinity, kInfinity};
#pragma unroll
    for (int j = 0; j < S::keys / 4; ++j) {
      const float y = s_[j / 2 * 4 + 2 * r + (j & 1)];
      high[j & 1] = fmaxf(high[j & 1], y);
      low[j & 1] = fminf(low[j & 1], y);
    }
    const float most = fmaxf(high[0], high[1]), least = fminf(low[0], low[1]);
    const float reference = raise(r, fmaxf(m_[r], capped(a_.softcap, quad_max(most))));
    if (fmaxf(most, -least) <= a_.softcap.near) {
      float sum = 0;
#pragma unroll
      for (int j = 0; j < S::keys / 4; ++j) {
        float& y = s_[j / 2 * 4 + 2 * r + (j & 1)];
        y = ptx::exp2_fast(near_capped(a_.softcap, y, reference));
        sum += y;
      }
      l_[r] += sum;
    } else {
      cap_row(r);
      weigh<false>(r, reference);
    }
    __syncwarp();
  }

  // Weights that dropout does not keep become 0.
  KEEL_DEVICE void drop(const Tile& tile) {
    const DropoutArguments& a = a_.dropout;
    const int position = tile.k_position + n_ * S::keys - tile.shift, group = position / 64;
    const bool second_half = S::keys == 32 && position % 64 != 0;
    int heads[2];
    DropoutRow rows[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const RowPlace p = place(tile, r);
      heads[r] = kRich ? p.head : tile.head;
      rows[r] = dropout_row(a, heads[r], tile.q_position + p.row);
    }
#pragma unroll
    for (int g = 0; g < (S::keys + 63) / 64; ++g) {
      DropoutKey keys[2][2];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        keys[i / 2][i % 2] = dropout_key(a, heads[i / 2], tile.entry, 8 * (group + g) + column_ + i % 2);
      }
      std::uint32_t words[4][4];
      dropout_words(a, rows, keys, words);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
#pragma unroll
        for (int w = 0; w < (S::keys == 32 ? 2 : 4); ++w) {
          const std::uint32_t word = second_half ? words[i][(w + 2) & 3] : words[i][w];
          float* const y = s_ + 4 * (8 * g + 2 * w) + i;  // columns column_ + i % 2 of 16, and 8 further on
          y[0] = word << 16 >= a.threshold ? y[0] : 0.0f;
          y[4] = word >= a.threshold ? y[4] : 0.0f;
        }
      }
    }
  }

  KEEL_DEVICE void convert() {
#pragma unroll
    for (int i = 0; i < S::keys / 4; ++i) p_[i] = ptx::pack<Element>(s_[2 * i], s_[2 * i + 1]);
  }
};

}  // namespace keel::cuda::hopper
