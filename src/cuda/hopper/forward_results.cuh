#pragma once

#include <math_constants.h>

#include <type_traits>

#include "cuda/hopper/forward_softmax.cuh"
#include "cuda/plain_forward.h"

// The end of a tile: sums become results, and rows that are no numbers are computed again.
namespace keel::cuda::hopper {

// By the plain kernel. A function of its own: it is long, and seldom called.
template <class Stored>
__noinline__ __device__ void compute_again(const Call& call, const OddRow& row) {
  plain_row<Stored>(call, row.entry, row.head, row.row, Warp());
}

template <class Element, class S, Terms kTerms, Statistics kStatistics>
class Results : protected Softmax<Element, S, kTerms, kStatistics> {
 protected:
  using Base = Softmax<Element, S, kTerms, kStatistics>;
  using Base::a_, Base::column_, Base::count_, Base::e_, Base::f1_, Base::f2_, Base::group_, Base::kDeepest,
      Base::kEntropy, Base::kFew, Base::kHidden, Base::kMoments, Base::kPanelQ, Base::kRich, Base::kTurn, Base::l_,
      Base::lane_, Base::m_, Base::maps_, Base::o_, Base::place, Base::shared_, Base::visible_, Base::warp_,
      Base::zero_;
  using Base::Base;

  struct RowResult {
    float factor = 0;                                     // of o
    float largest = -kInfinity, top = -kInfinity, l = 0;  // units of log 2, sink included in the last two
    float largest_factor = 0;                             // factor, before what dropout multiplies by
    int visible = 0;
    bool odd = false;  // compute again
  };

  KEEL_DEVICE void finish(const Tile& tile, const RowPlace (&places)[2], RowResult (&results)[2]) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float zeros[2] = {};  // NaN where o has NaN or infinity
#pragma unroll
      for (int j = 0; j < S::d / 4; ++j) zeros[j & 1] = fmaf(o_[j / 2 * 4 + 2 * r + (j & 1)], 0.0f, zeros[j & 1]);
      const float zero = quad_sum(zeros[0] + zeros[1]);
      if (l_[r] != 0.0f && !(zero == 0.0f)) results[r].odd = true;
    }
    if (kFew && a_.partials.out != nullptr) {
#pragma unroll
      for (int r = 0; r < 2; ++r) store_partial(tile, places[r], results[r], r);
      return;
    }
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      if ((lane_ & 3) != 0 || !places[r].exists) continue;
      if (results[r].odd) {
        note(tile, places[r]);
      } else if (a_.reports) {
        report(tile, places[r], results[r], r);
      }
    }
    if (__any_sync(~0u, results[0].factor == 0.0f || results[1].factor == 0.0f)) {
#pragma unroll
      for (int i = 0; i < S::d / 2; ++i) {
        if (results[(i >> 1) & 1].factor == 0.0f) o_[i] = 0.0f;  // also NaN
      }
    }
#pragma unroll
    for (int i = 0; i < S::d / 2; ++i) o_[i] *= results[(i >> 1) & 1].factor;
    const int in_tile = group_ * 64 + warp_ * 16;
    const bool whole = !a_.call.sequences.packed() || in_tile + 16 <= tile.rows;
    if (S::roomy && a_.stores_tiles && whole) {
      store_warp(tile, in_tile);
    } else {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        if (!S::roomy && a_.stores_tiles && a_.call.d_v % 8 == 0) {
          store_chunks(tile, places[r], r);
        } else if (places[r].exists) {
          store_row(tile, places[r], r);
        }
      }
    }
  }

  KEEL_DEVICE void note(const Tile& tile, const RowPlace& place) {
    const Call& c = a_.call;
    const std::int64_t at = (tile.batch * c.q_heads + place.head) * c.sequences.n_q + tile.q_begin + place.row;
    const auto before = atomicExch(reinterpret_cast<unsigned long long*>(&shared_.odd), at);
    a_.odd.rows[at] = {tile.entry, place.head, place.row, static_cast<std::int64_t>(before)};
  }

  // The rows that the CTA has noted, in turn among its warps.
  KEEL_DEVICE void compute_odd_rows() {
    constexpr int kWarps = 4 * S::groups;
    ptx::sync(kTurn + S::groups, 128 * S::groups);
    int turn = group_ * 4 + warp_;
    for (std::int64_t at = shared_.odd; at >= 0; --turn) {
      const OddRow row = a_.odd.rows[at];
      if (turn == 0) {
        compute_again<std::conditional_t<std::is_same_v<Element, __half>, Float16, BFloat16>>(a_.call, row);
        turn = kWarps;
      }
      at = row.before;
    }
  }

  KEEL_DEVICE RowResult result(const Tile& tile, const RowPlace& place, int r) {
    RowResult x;
    l_[r] = quad_sum(l_[r]);
    if (kEntropy) e_[r] = quad_sum(e_[r]);
    if (kMoments) {
      f1_[r] = quad_sum(f1_[r]);
      f2_[r] = quad_sum(f2_[r]);
      if (kRich) {
        count_[r] += __shfl_xor_sync(~0u, count_[r], 1);
        count_[r] += __shfl_xor_sync(~0u, count_[r], 2);
        visible_[r] += __shfl_xor_sync(~0u, visible_[r], 1);
        visible_[r] += __shfl_xor_sync(~0u, visible_[r], 2);
      }
    }
    if (kRich) zero_[r] = quad_sum(zero_[r]);
    const int begin = tile.block_begin * S::keys - tile.shift, end = tile.block_end * S::keys - tile.shift;
    const bool sees = place.row < tile.q_len && place.keys.begin < min(place.keys.end, end) && place.keys.end > begin;
    if (!sees) {
      l_[r] = 0;
      return x;
    }
    // Scores that are no numbers: −inf, which looks like a mask by now, +inf and NaN are told apart without hurry.
    const bool none = m_[r] <= kHidden, numbers = !kRich || zero_[r] == 0.0f;
    if (none && kRich && numbers) {  // all hidden
      l_[r] = 0;
      return x;
    }
    // Weights that miss 1 by far: scores so large that their products with the scale differ by more than rounding
    // should.
    x.odd = none || !(l_[r] > 0x1p-20f && l_[r] < kInfinity) || !(fabsf(m_[r]) < kInfinity) ||
            (kEntropy && e_[r] != e_[r]) || (kMoments && (kRich ? !numbers : !(f2_[r] < 0x1p90f)));
    x.visible = kRich && kMoments ? visible_[r] : place.keys.end - place.keys.begin;
    x.largest = __fmul_rn(m_[r], kRich ? 1.0f : a_.scale_log2);
    float top = x.largest, l = l_[r];
    if (a_.call.sinks && !(kFew && a_.partials.out != nullptr)) {
      const float sink =
          1.4426950408889634f * load_float(a_.call.sinks.data, a_.call.sinks.dtype, place.head * a_.call.sinks.head);
      top = fmaxf(x.largest, sink);
      const float before = x.largest - top, apart = sink - top, weight = exp2f(before), p = exp2f(apart);
      if (kEntropy) {
        e_[r] = weight * fmaf(l, fmaxf(before, kDeepest), e_[r]);
        if (p > 0) e_[r] = fmaf(p, apart, e_[r]);
      }
      l = fmaf(l, weight, p);
      x.odd = x.odd || !(fabsf(top) < kInfinity);
      x.factor = weight / l;
    } else {
      x.factor = 1.0f / l;
    }
    x.largest_factor = x.factor;
    if (kTerms == Terms::dropout || kRich) x.factor *= a_.dropout.factor;
    x.l = l;
    x.top = top;
    return x;
  }

  KEEL_DEVICE void report(const Tile& tile, const RowPlace& place, const RowResult& x, int r) {
    const Call& c = a_.call;
    const int b = tile.batch, h = place.head, i = tile.q_begin + place.row;
    const bool masked = x.l == 0.0f;
    if (c.lse) at<float>(c.lse, b, h, i) = masked ? -kInfinity : (x.top + log2f(x.l)) * CUDART_LN2_F;
    if (c.max_logit) at<float>(c.max_logit, b, h, i) = masked ? -kInfinity : x.largest * CUDART_LN2_F;
    if (c.max_weight) {
      // The largest weight is not quite 1 relative to its own score, once that is rounded.
      const float weight = kRich ? 1.0f : exp2f(fmaf(m_[r], a_.scale_log2, -x.largest));
      at<float>(c.max_weight, b, h, i) = masked ? 0.0f : x.largest_factor * weight;
    }
    if (c.visible) at<std::int64_t>(c.visible, b, h, i) = masked ? 0 : x.visible;
    if (kEntropy && c.entropy) {
      at<float>(c.entropy, b, h, i) = masked ? 0.0f : (log2f(x.l) - e_[r] / x.l) * CUDART_LN2_F;
    }
    if (kMoments) {
      const int count = masked ? 0 : kRich ? count_[r] : place.keys.end - place.keys.begin;
      const float number = static_cast<float>(count);
      const float mean = count == 0 ? 0.0f : f1_[r] / number;
      if (c.logit_count) at<std::int64_t>(c.logit_count, b, h, i) = count;
      if (c.logit_mean) at<float>(c.logit_mean, b, h, i) = count == 0 ? 0.0f : (x.largest + mean) * CUDART_LN2_F;
      if (c.logit_var) {
        at<float>(c.logit_var, b, h, i) =
            count == 0 ? 0.0f : fmaxf(f2_[r] / number - mean * mean, 0.0f) * (CUDART_LN2_F * CUDART_LN2_F);
      }
    }
  }

  // The warp's 16 rows, by the copy engine.
  KEEL_DEVICE void store_warp(const Tile& tile, int in_tile) {
    using namespace ptx;
    const std::uint32_t to = shared_address(shared_.out) + in_tile * 128;
    if (lane_ == 0) wait_until_stores_have_read();  // those of the last tile
    __syncwarp();
#pragma unroll
    for (int j = 0; j < S::d / 16; ++j) {
      const std::uint32_t packed[4] = {
          pack<Element>(o_[8 * j], o_[8 * j + 1]), pack<Element>(o_[8 * j + 2], o_[8 * j + 3]),
          pack<Element>(o_[8 * j + 4], o_[8 * j + 5]), pack<Element>(o_[8 * j + 6], o_[8 * j + 7])};
      store_16x16(to + j / 4 * kPanelQ, 0, j % 4 * 2, lane_, packed);
    }
    publish_to_copies();
    __syncwarp();
    if (lane_ == 0) {
#pragma unroll
      for (int p = 0; p < S::panels; ++p) {
        store_tile(maps_.out, to + p * kPanelQ,
                   {p * 64, 0, tile.q_begin + tile.first_row + in_tile, tile.head, tile.batch});
      }
      commit_stores();
    }
  }

  // Each of four threads has four words; afterwards the l-th has the l-th word of each.
  KEEL_DEVICE void exchange(std::uint32_t (&word)[4]) const {
#pragma unroll
    for (int step = 1; step <= 2; step *= 2) {
      const bool upper = (lane_ & step) != 0;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        if (i & step) continue;
        const std::uint32_t other = __shfl_xor_sync(~0u, upper ? word[i] : word[i + step], step);
        (upper ? word[i] : word[i + step]) = other;
      }
    }
  }

  // A row whose chunks of 8 columns lie at multiples of 16 bytes: each of its four threads stores every fourth.
  KEEL_DEVICE void store_chunks(const Tile& tile, const RowPlace& place, int r) {
    Element* const row = &at<Element>(a_.call.out, tile.batch, place.head, tile.q_begin + place.row);
    const int d_v = static_cast<int>(a_.call.d_v);
#pragma unroll
    for (int q = 0; q < S::d / 32; ++q) {
      std::uint32_t words[4];
#pragma unroll
      for (int t = 0; t < 4; ++t) {
        const int i = 4 * (4 * q + t) + 2 * r;
        words[t] = ptx::pack<Element>(o_[i], o_[i + 1]);
      }
      exchange(words);
      const int c = 32 * q + 8 * (lane_ & 3);
      if (place.exists && c < d_v) *reinterpret_cast<uint4*>(row + c) = {words[0], words[1], words[2], words[3]};
    }
  }

  // A row, by each of the four threads that hold it.
  KEEL_DEVICE void store_row(const Tile& tile, const RowPlace& place, int r) {
    const MutableStrided& out = a_.call.out;
    if (out.dtype == DType::f32) {
      store_columns(&at<float>(out, tile.batch, place.head, tile.q_begin + place.row), out.column, r);
    } else {
      store_columns(&at<Element>(out, tile.batch, place.head, tile.q_begin + place.row), out.column, r);
    }
  }
  template <class Stored>
  KEEL_DEVICE void store_columns(Stored* row, std::int64_t step, int r) {
    const int d_v = static_cast<int>(a_.call.d_v);
    Stored* to = row + column_ * step;
#pragma unroll
    for (int j = 0; j < S::d / 4; ++j) {
      if (j / 2 * 8 + column_ < d_v) *to = static_cast<Stored>(o_[j / 2 * 4 + 2 * r + (j & 1)]);  // d_v is even
      to += (j & 1) != 0 ? 7 * step : step;
    }
  }

  KEEL_DEVICE void store_partial(const Tile& tile, const RowPlace& place, const RowResult& x, int r) {
    if (!place.exists) return;
    const Call& c = a_.call;
    const std::int64_t row = (tile.batch * c.q_heads + place.head) * c.sequences.n_q + tile.q_begin + place.row;
    const std::int64_t to = tile.chunk * a_.partials.rows + row;
    const bool none = l_[r] == 0.0f && !x.odd;
    if ((lane_ & 3) == 0) {
      a_.partials.sums[to] = {none ? -kInfinity : x.largest, x.odd ? CUDART_NAN_F : l_[r]};
    }
    const int d_v = static_cast<int>(c.d_v);
    float* const out = a_.partials.out + to * d_v;
#pragma unroll
    for (int j = 0; j < S::d / 4; ++j) {
      const int column = j / 2 * 8 + column_ + (j & 1);
      if (column < d_v) out[column] = none ? 0.0f : o_[j / 2 * 4 + 2 * r + (j & 1)];
    }
  }
};

}  // namespace keel::cuda::hopper
