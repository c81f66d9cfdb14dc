#pragma once

#include "cuda/hopper/dropout.h"
#include "cuda/hopper/gradient_rows.cuh"

// Weights in the backward pass where scores need more than a mask by position: a softcap, a bias, a mask, ALiBi,
// dropout, a scale per row. Each is tested for; elements of a bias or mask are loaded one at a time.
namespace keel::cuda::hopper {

constexpr float kHiddenMark = -3e38f;  // in place of a factor

// The block of pairs that a thread has a part of: two keys, 8 apart, by 64 rows, as accumulators are held.
struct Pairs {
  int head;  // query head
  int key;   // the thread's first, of the entry
  int row;   // the block's first, of the entry
};

// From q·k in s: p with dropout (which leaves out its factor); and, put aside at once, p, negative where a weight is
// dropped, or kHiddenMark where a pair is hidden, and the softcap's slope.
template <class Element>
class TermWeights {
 public:
  KEEL_DEVICE TermWeights(const BackwardArguments& a, const KeyTile& tile, const Pairs& pairs)
      : f_(a.call.forward),
        window_(a.window),
        tile_(tile),
        pairs_(pairs),
        slope_(f_.alibi ? 1.4426950408889634f * load_row_value<float>(f_.alibi, tile.batch, pairs.head, 0) : 0.0f) {}

  template <class Put>
  KEEL_DEVICE void run(float (&s)[32], const float* lse_log2, const float* scale, const Put& put) const {
    const std::uint32_t dropped = f_.dropout > 0 ? dropped_pairs() : 0;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int key = pairs_.key + 8 * r;
      const Keys rows = rows_of(tile_, window_, key);
#pragma unroll
      for (int j = 0; j < 16; ++j) {
        const int in_block = row_in_block(j), row = pairs_.row + in_block, i = j / 2 * 4 + 2 * r + (j & 1);
        float slope = 1.0f;
        const float p = weigh_one(row >= rows.begin && row < rows.end, row, key, scale[in_block] * 1.4426950408889634f,
                                  lse_log2[in_block], !(dropped >> (2 * j + r) & 1), s[i], slope);
        put(i, p, slope);
      }
    }
  }

 private:
  // The j-th of a thread's rows.
  static KEEL_DEVICE int row_in_block(int j) { return j / 2 * 8 + static_cast<int>(threadIdx.x & 3) * 2 + (j & 1); }

  KEEL_DEVICE float weigh_one(bool visible, int row, int key, float scale_log2, float lse_log2, bool kept, float& s,
                              float& slope) const {
    float x = s * scale_log2;
    if (f_.softcap > 0) {  // c·tanh(x/c) = c·(1 − 2u), whose slope is 4u·(1 − u), u = 1 / (1 + e^(2x/c))
      const float cap = static_cast<float>(f_.softcap);
      const float u = ptx::reciprocal_fast(1.0f + ptx::exp2_fast(x * (2.0f / cap)));
      x = cap * 1.4426950408889634f * fmaf(-2.0f, u, 1.0f);
      slope = 4.0f * u * (1.0f - u);
    }
    if (f_.bias && visible) {
      const float b = load_bias(row, key);
      constexpr float kLeast = -3.4028234e38f / 1.4426950408889634f;
      visible = b != -INFINITY;
      x = fmaf(fmaxf(b, kLeast), 1.4426950408889634f, x);
    }
    if (f_.mask && visible) {
      visible = static_cast<const std::uint8_t*>(f_.mask.data)[place(f_.mask, row, key)] != 0;
    }
    if (f_.alibi) x = fmaf(-slope_, static_cast<float>(abs(row + tile_.diagonal - key)), x);
    const float p = ptx::exp2_fast(x - lse_log2);
    s = !visible ? 0.0f : kept ? p : 0.0f * p;  // a product: NaN stays NaN
    return !visible ? kHiddenMark : kept ? p : -p;
  }

  KEEL_DEVICE std::int64_t place(const Strided& x, int row, int key) const {
    return place_in(x, tile_.batch, pairs_.head, tile_.q_begin + row, tile_.k_begin + key);
  }
  KEEL_DEVICE float load_bias(int row, int key) const {
    const std::int64_t at = place(f_.bias, row, key);
    if (f_.bias.dtype == DType::f32) return static_cast<const float*>(f_.bias.data)[at];
    return static_cast<float>(static_cast<const Element*>(f_.bias.data)[at]);
  }

  // Bit 2·j + r: the weight of the j-th row and the r-th key.
  KEEL_DEVICE std::uint32_t dropped_pairs() const {
    const Dropout dropout(f_.dropout, f_.seed);
    std::uint32_t dropped = 0;
#pragma unroll
    for (int j = 0; j < 16; ++j) {
      const int row = tile_.q_position + pairs_.row + row_in_block(j);
      const DropoutPair bits = dropout_pair(dropout, tile_.entry, pairs_.head, row, tile_.k_position + pairs_.key);
      dropped |= (bits.first < dropout.threshold ? 1u : 0u) << 2 * j;
      dropped |= (bits.second < dropout.threshold ? 2u : 0u) << 2 * j;
    }
    return dropped;
  }

  const Call& f_;
  const Window& window_;
  const KeyTile& tile_;
  const Pairs pairs_;
  const float slope_;  // ALiBi's, in units of log 2
};

// dx = ds·slope in place of dp.
KEEL_DEVICE void differentiate_terms(const float (&factors)[32], float (&dp)[32], const float* delta, float kept) {
  const int column = (threadIdx.x & 3) * 2;
#pragma unroll
  for (int i = 0; i < 32; ++i) {
    const float f = factors[i], z = __float_as_uint(f) >> 31 ? 0.0f : kept;
    dp[i] = f == kHiddenMark ? 0.0f : fabsf(f) * fmaf(z, dp[i], -delta[i / 4 * 8 + column + (i & 1)]);
  }
}

// By the scales of the rows.
KEEL_DEVICE void scale_rows(float (&dx)[32], const float* scale) {
  const int column = (threadIdx.x & 3) * 2;
#pragma unroll
  for (int i = 0; i < 32; ++i) dx[i] *= scale[i / 4 * 8 + column + (i & 1)];
}

// ds of a thread's pairs to dbias, which has a place for each.
template <class Element>
KEEL_DEVICE void store_bias_gradients(const MutableStrided& to, const KeyTile& tile, const Pairs& pairs,
                                      const float (&ds)[32]) {
#pragma unroll
  for (int i = 0; i < 32; ++i) {
    const int row = pairs.row + i / 4 * 8 + (threadIdx.x & 3) * 2 + (i & 1), key = pairs.key + 8 * (i >> 1 & 1);
    if (row >= tile.q_len || key >= tile.k_len) continue;
    const std::int64_t at = place_in(to, tile.batch, pairs.head, tile.q_begin + row, tile.k_begin + key);
    if (to.dtype == DType::f32) {
      static_cast<float*>(to.data)[at] = ds[i];
    } else {
      static_cast<Element*>(to.data)[at] = static_cast<Element>(ds[i]);
    }
  }
}

}  // namespace keel::cuda::hopper
