#pragma once

#include <math_constants.h>

#include <limits>
#include <type_traits>

#include "cuda/hopper/dropout.cuh"
#include "cuda/hopper/loader.cuh"
#include "cuda/hopper/softcap.cuh"
#include "cuda/hopper/term_tiles.cuh"
#include "cuda/plain_forward.h"
#include "wgmma.cuh"

// The streaming forward pass on Hopper, 16-bit in, sums in f32. A CTA takes tiles of 64 rows per warpgroup, one tile
// after another. One thread loads: tiles of q, blocks of k and v, two of each on the way. Each warpgroup owns 64 rows
// and walks the blocks of keys from the last to the first; the products of block n with v and of block n − 1 with q run
// while the softmax of a block is computed. The warpgroups issue their products in turn, so that one is in its softmax
// while another fills the matrix units.
//
// A thread holds two rows of its warpgroup's accumulators, lane / 4 and lane / 4 + 8 of its warp's 16, of these columns
// 8·i + 2·(lane mod 4) and the next. Element i of an array of accumulators belongs to row (i / 2) mod 2.
//
// What is hidden is taken out of the scores, so it has weight 0; but 0 · NaN and 0 · inf of a hidden value are NaN in
// the product with v. NaN stays NaN in a sum, so it is enough to look at the end: rows with a NaN are noted, and
// computed again by plain_row(), which never touches what is hidden, when the CTA has no tile left.
namespace keel::cuda::hopper {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// A number that all lanes hold, for the compiler to know: it then stays out of the lanes' registers.
KEEL_DEVICE int same_in_all(int x) { return __shfl_sync(~0u, x, 0); }

KEEL_DEVICE float quad_sum(float x) {
  x += __shfl_xor_sync(~0u, x, 1);
  return x + __shfl_xor_sync(~0u, x, 2);
}
KEEL_DEVICE float quad_max(float x) {
  x = fmaxf(x, __shfl_xor_sync(~0u, x, 1));
  return fmaxf(x, __shfl_xor_sync(~0u, x, 2));
}

template <class T>
KEEL_DEVICE T& at(const MutableStrided& x, int b, int h, int i, int c = 0) {
  return static_cast<T*>(x.data)[b * x.batch + h * x.head + i * x.row + c * x.column];
}

// A float of any dtype, from global memory.
KEEL_DEVICE float load_float(const void* data, DType dtype, std::int64_t index) {
  switch (dtype) {
    case DType::f64:
      return static_cast<float>(static_cast<const double*>(data)[index]);
    case DType::f32:
      return static_cast<const float*>(data)[index];
    case DType::f16:
      return __half2float(static_cast<const __half*>(data)[index]);
    default:
      return __bfloat162float(static_cast<const __nv_bfloat16*>(data)[index]);
  }
}

// Where a row of the thread stands.
struct RowPlace {
  int head, row;  // query head, and row of the entry
  Keys keys;      // that it may see by position; none for padding
  bool exists;    // in q
};

// By the plain kernel. A function of its own: it is long, and seldom called.
template <class Stored>
__noinline__ __device__ void compute_again(const Call& call, const OddRow& row) {
  plain_row<Stored>(call, row.entry, row.head, row.row, Warp());
}

// All that a warpgroup does.
template <class Element, class S, Terms kTerms, Statistics kStatistics>
class Group {
  static constexpr bool kRich = kTerms == Terms::any;
  static constexpr bool kTiled = S::term_bytes > 0;                          // the only term is a bias or mask
  static constexpr bool kLinear = kTerms == Terms::alibi && S::groups == 2;  // ALiBi takes a short way
  static constexpr bool kSkips = S::groups == 2;                             // a mask that hides nothing of a block
  static constexpr bool kEntropy = kStatistics != Statistics::none, kMoments = kStatistics == Statistics::moments;
  static constexpr int kPanelQ = S::rows * 128, kPanelK = S::keys * 128, kStage = kPanelK * S::panels;
  static constexpr int kTurn = 1;                                       // named barriers, one per warpgroup
  static constexpr float kHidden = kRich ? -kInfinity : -1e38f;         // score of a hidden key
  static constexpr float kMaskedLog2 = -0x1p64f * 1.4426950408889634f;  // see core/masked_score.h
  static constexpr bool kKeeps = S::d <= 128;   // there are registers for the rows' scale and slope
  static constexpr float kDeepest = -16384.0f;  // whose power of two is 0

 public:
  KEEL_DEVICE Group(Shared<Element, S>& shared, const Maps& maps, const ForwardArguments& a, int group)
      : shared_(shared),
        maps_(maps),
        a_(a),
        group_(group),
        thread_(threadIdx.x & 127),
        lane_(threadIdx.x & 31),
        warp_(thread_ >> 5),
        column_((lane_ & 3) * 2) {
    q_ = ptx::operand(ptx::shared_address(shared.q) + group * 64 * 128, 16);
    k_ = ptx::operand(ptx::shared_address(shared.k[0]), 16);
    v_ = ptx::operand(ptx::shared_address(shared.v[0]), kPanelK);
  }

  KEEL_DEVICE void run() {
    using namespace ptx;
    if (S::groups > 1 && group_ == S::groups - 1) signal(kTurn, 256);
    for (int round = 0;; ++round) {
      const Tile& tile = take(round);
      if (tile.index < 0) break;
      begin(tile);
      walk(tile, round);
      RowPlace places[2];
      RowResult results[2];
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        places[r] = place(tile, r);
        results[r] = result(tile, places[r], r);
      }
      wait_products<0>();
      hold(o_);
      release(shared_.v_empty[(step_ - 1) & 1]);
      finish(tile, places, results);
      release_by_warp(shared_.tile_empty[round & 1]);
    }
    if (lane_ == 0) wait_until_stored();
    compute_odd_rows();
  }

 private:
  KEEL_DEVICE void release(std::uint64_t& barrier) {
    if (thread_ == 0) ptx::arrive(ptx::shared_address(&barrier));
  }
  KEEL_DEVICE void release_by_warp(std::uint64_t& barrier) {
    __syncwarp();
    if (lane_ == 0) ptx::arrive(ptx::shared_address(&barrier));
  }

  // The tile of a round, once its rows of q are there.
  KEEL_DEVICE const Tile& take(int round) {
    ptx::wait(ptx::shared_address(&shared_.q_full[round % S::queries]), round / S::queries & 1);
    return shared_.tile[round & 1];
  }

  // All blocks of a tile, up to the products with the last values, which it leaves under way.
  KEEL_DEVICE void walk(const Tile& tile, int round) {
    using namespace ptx;
    const int first = same_in_all(tile.block_begin);
    n_ = same_in_all(tile.block_end) - 1;
    full_begin_ = same_in_all(tile.full_begin);
    full_end_ = same_in_all(tile.full_end);
    q_stage_ = same_in_all(round % S::queries);
    if constexpr (kLinear) {
      static_assert(S::keys == 128);
      const int at = tile.first_row + tile.diagonal + tile.shift;  // of the first row
      across_begin_ = same_in_all(((at - S::keys + 1) >> 7) + 1);
      across_end_ = same_in_all((at + S::rows - 1 + S::keys - 1) >> 7);
    }
    wait(shared_address(&shared_.k_full[step_ & 1]), (step_ >> 1) & 1);
    scores(step_ & 1);
    await_term(step_);
    wait_products<0>();
    hold(s_);
    release(shared_.k_empty[step_ & 1]);
    if (kRich || hides()) {
      softmax<true>(tile);
    } else {
      softmax<false>(tile);
    }
    convert();
    --n_;
    // Apart, blocks that hide nothing have no branch between their products and the softmax, across which the compiler
    // would not overlap them.
    while (n_ >= first) {
#pragma unroll 1
      for (; n_ >= first && (kRich || hides()); --n_) block<true>(tile);
      if constexpr (!kRich) {
#pragma unroll 1
        for (const int end = max(first, full_until()); n_ >= end; --n_) block<false>(tile);
      }
    }
    release(shared_.q_empty[round % S::queries]);
    wait(shared_address(&shared_.v_full[step_ & 1]), (step_ >> 1) & 1);
    values(step_ & 1);
    ++step_;
  }

  // Whether block n_ hides some key from some row, or has keys on both sides of some row's position where that matters.
  KEEL_DEVICE bool hides() const {
    if (kLinear && n_ >= across_begin_ && n_ < across_end_) return true;
    return n_ < full_begin_ || n_ >= full_end_;
  }
  // The last block, from n_ down, of those that do not.
  KEEL_DEVICE int full_until() const {
    return kLinear && n_ >= across_end_ ? max(full_begin_, across_end_) : full_begin_;
  }

  KEEL_DEVICE RowPlace place(const Tile& tile, int r) const {
    const int at = tile.first_row + group_ * 64 + warp_ * 16 + lane_ / 4 + 8 * r;
    const int share = a_.cut.share, row = share == 1 ? at : at / share;
    RowPlace p;
    p.head = share == 1 ? tile.head : tile.head * share + at % share;
    p.row = row;
    p.exists = at < tile.first_row + tile.rows;
    // Rows past the end see what the last one sees: a tile at the end of q needs no mask for their sake.
    p.keys = keys_of(tile, a_.window, min(row, max(tile.q_len - 1, 0)));
    p.keys.end = max(p.keys.end, p.keys.begin);
    return p;
  }

  // Where an array has its values for a row; those of padding are not used, but read.
  KEEL_DEVICE std::int64_t place_of(const Strided& x, const Tile& tile, const RowPlace& p) const {
    const int row = tile.q_begin + min(p.row, max(tile.q_len - 1, 0));
    return tile.batch * x.batch + p.head * x.head + row * x.row;
  }

  KEEL_DEVICE float scale_log2(const Tile& tile, const RowPlace& p) const {
    const Strided& x = a_.call.scale_tensor;
    const float scale = x ? load_float(x.data, x.dtype, place_of(x, tile, p)) : static_cast<float>(a_.call.scale);
    return scale * 1.4426950408889634f;
  }
  KEEL_DEVICE float slope_log2(const Tile& tile, const RowPlace& p) const {
    const Strided& x = a_.call.alibi;
    return x ? 1.4426950408889634f * load_float(x.data, x.dtype, tile.batch * x.batch + p.head * x.head) : 0.0f;
  }

  KEEL_DEVICE void begin(const Tile& tile) {
#pragma unroll
    for (int i = 0; i < S::d / 2; ++i) o_[i] = 0;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const RowPlace p = place(tile, r);
      m_[r] = kHidden;
      l_[r] = e_[r] = f1_[r] = f2_[r] = 0;
      count_[r] = visible_[r] = 0;
      zero_[r] = 0;
      if (kTerms == Terms::alibi) slope_log2_[r] = slope_log2(tile, p) / a_.scale_log2;
      if (kRich && kKeeps) {
        scale_log2_[r] = scale_log2(tile, p);
        slope_log2_[r] = slope_log2(tile, p);
      }
    }
  }

  KEEL_DEVICE void scores(int stage) {
    using namespace ptx;
    const std::uint64_t q = q_ + (S::queries > 1 ? q_stage_ * further(kPanelQ * S::panels) : 0);
    begin_products();
    hold(s_);
#pragma unroll
    for (int c = 0; c < S::d / 16; ++c) {
      RowsByRows<Element, S::keys>::run(s_, q + further(c / 4 * kPanelQ + c % 4 * 32),
                                        k_ + stage * further(kStage) + further(c / 4 * kPanelK + c % 4 * 32), c > 0);
    }
    commit_products();
    hold(s_);
  }

  KEEL_DEVICE void values(int stage) {
    using namespace ptx;
    begin_products();
    hold(o_);
#pragma unroll
    for (int c = 0; c < S::keys / 16; ++c) {
      RegistersByColumns<Element, S::d>::run(o_, p_ + 4 * c, v_ + stage * further(kStage) + further(c * 2048));
    }
    commit_products();
    hold(o_);
  }

  // The next block's scores and this block's values at once, then the softmax of the next.
  template <bool kPartial>
  KEEL_DEVICE void block(const Tile& tile) {
    using namespace ptx;
    const int next = step_ + 1;
    wait(shared_address(&shared_.k_full[next & 1]), (next >> 1) & 1);
    if (S::groups > 1) sync(kTurn + group_, 256);
    scores(next & 1);
    wait(shared_address(&shared_.v_full[step_ & 1]), (step_ >> 1) & 1);
    values(step_ & 1);
    if (S::groups > 1) signal(kTurn + (group_ + 1) % S::groups, 256);
    await_term(next);
    wait_products<1>();
    hold(s_);
    release(shared_.k_empty[next & 1]);
    softmax<kPartial>(tile);
    wait_products<0>();
    hold(o_);
    release(shared_.v_empty[step_ & 1]);
#pragma unroll
    for (int i = 0; i < S::d / 2; ++i) o_[i] *= a_factor_[(i >> 1) & 1];
    convert();
    step_ = next;
  }

  // The thread's first key of the block.
  KEEL_DEVICE int first_key(const Tile& tile) const { return n_ * S::keys - tile.shift + column_; }

  // Which keys of the block row r may see by position: bit 2·j + b is the thread's key 8·j + b.
  KEEL_DEVICE std::uint32_t in_range(const Tile& tile, int r) const {
    const Keys keys = place(tile, r).keys;
    const int first = first_key(tile);
    const auto below = [](int key) {
      const int x = min(max(key, 0), 128), count = x / 8 * 2 + min(x % 8, 2);
      return count < 32 ? (1u << count) - 1 : ~0u;
    };
    return below(keys.end - first) & ~below(keys.begin - first);
  }

  // Of row r, scores without a bit become hidden.
  KEEL_DEVICE void keep(int r, std::uint32_t bits) {
#pragma unroll
    for (int i = 0; i < S::keys / 4; ++i) {
      float& y = s_[i / 2 * 4 + 2 * r + (i & 1)];
      y = (bits & (1u << i)) != 0 ? y : kHidden;
    }
  }

  // ---- A single term. Scores stay in units of q·k, of which the softmax takes the scale, so terms are divided by it.
  // What is then infinite, or below what hides, makes a row odd if no other score is above.

  // What the term needs for the block of scores on its way, while products run.
  KEEL_DEVICE void await_term(int step) {
    if constexpr (kTiled) ptx::wait(ptx::shared_address(&shared_.term_full[group_]), step & 1);
  }

  // Of one row, exactly.
  KEEL_DEVICE void cap_row(int r) {
#pragma unroll
    for (int i = 2 * r; i < S::keys / 2; i += 8) cap_4(a_.softcap, s_[i], s_[i + 1], s_[i + 4], s_[i + 5]);
  }

  // −slope·|position − key|. Of a block on one side of the row's position it is linear in the key; base_ is what its
  // scores have in common. Where there are registers for it, blocks with keys on both sides of some row's position
  // count as partial, and others are known to be of the simple kind.
  template <bool kPartial>
  KEEL_DEVICE void add_alibi(const Tile& tile, int r) {
    const int row = tile.first_row + group_ * 64 + warp_ * 16 + lane_ / 4 + 8 * r, at = row + tile.diagonal;
    const int first = n_ * S::keys - tile.shift, last = first + S::keys - 1;
    const bool across = !kLinear || (kPartial && at > first && at < last);
    const float distance = static_cast<float>(at - first_key(tile));  // exact
    const float slope = kLinear && at >= last ? slope_log2_[r] : -slope_log2_[r];
    base_[r] = across ? 0.0f : -slope * distance;
#pragma unroll
    for (int j = 0; j < S::keys / 4; ++j) {
      const float key = static_cast<float>(j / 2 * 8 + (j & 1));
      float& y = s_[j / 2 * 4 + 2 * r + (j & 1)];
      y = fmaf(slope, across ? fabsf(distance - key) : key, y);
    }
  }

  template <bool kPartial>
  KEEL_DEVICE void add_term(const Tile& tile) {
    if constexpr (kTerms == Terms::alibi) {
      add_alibi<kPartial>(tile, 0);
      add_alibi<kPartial>(tile, 1);
    }
    if constexpr (kTerms == Terms::bias) {
      add_bias<Element, S::keys>(s_, first_term<S>(a_, shared_.term[group_], warp_, lane_), a_.inverse_scale);
      release_by_warp(shared_.term_empty[group_]);
    }
  }

  // By the mask, and by position.
  template <bool kPartial>
  KEEL_DEVICE void hide(const Tile& tile) {
    if constexpr (kPartial || kTerms == Terms::mask) {
      std::uint32_t seen[2] = {~0u, ~0u};
      if constexpr (kTerms == Terms::mask) {
        read_mask(first_term<S>(a_, shared_.term[group_], warp_, lane_), lane_, seen);
        release_by_warp(shared_.term_empty[group_]);
        if (kSkips && !kPartial && __all_sync(~0u, (seen[0] & seen[1]) == ~0u)) return;
      }
      if (kPartial) {
        seen[0] &= in_range(tile, 0);
        seen[1] &= in_range(tile, 1);
      }
      keep(0, seen[0]);
      keep(1, seen[1]);
    }
  }

  // ---- Any terms.

  // One score, from q·k to what enters the softmax, in units of log 2.
  KEEL_DEVICE void enrich(const Tile& tile) {
    const Call& c = a_.call;
    const float two_over_cap = c.softcap > 0 ? 2.0f / static_cast<float>(c.softcap) : 0.0f;
    const float cap_log2 = static_cast<float>(c.softcap) * 1.4426950408889634f;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      if (S::d > 128) asm volatile("" ::: "memory");  // one row's loads at a time, or registers run out
      const RowPlace p = place(tile, r);
      const int first = p.keys.begin, base = first_key(tile) - first, keys = p.keys.end - first;
      const float scale = kKeeps ? scale_log2_[r] : scale_log2(tile, p);
      const float slope = kKeeps ? slope_log2_[r] : slope_log2(tile, p);
      const int diagonal = p.row + tile.diagonal - first;  // counted as keys are here
      const auto each = [&](auto&& change) {
#pragma unroll
        for (int j = 0; j < S::keys / 4; ++j) {
          const int key = base + j / 2 * 8 + (j & 1);
          change(s_[j / 2 * 4 + 2 * r + (j & 1)], key);
        }
      };
      float zeros[4] = {};
#pragma unroll
      for (int j = 0; j < S::keys / 4; ++j) {
        float& y = s_[j / 2 * 4 + 2 * r + (j & 1)];
        y *= scale;
        zeros[j & 3] = fmaf(y, 0.0f, zeros[j & 3]);
      }
      zero_[r] += (zeros[0] + zeros[1]) + (zeros[2] + zeros[3]);
      if (c.softcap > 0) {  // c·tanh(s/c) = c·(1 − 2 / (1 + e^(2s/c)))
        each([&](float& y, int) {
          y = cap_log2 * fmaf(-2.0f, ptx::reciprocal_fast(1.0f + ptx::exp2_fast(y * two_over_cap)), 1.0f);
        });
      }
      if (c.bias) {
        const std::int64_t from = place_of(c.bias, tile, p) + tile.k_begin + base + first;
        if (c.bias.dtype == DType::f32) {
          add_any_bias(r, base, keys, static_cast<const float*>(c.bias.data) + from);
        } else {
          add_any_bias(r, base, keys, static_cast<const Element*>(c.bias.data) + from);
        }
      }
      if (c.alibi) {
        const float distance = static_cast<float>(diagonal - base);  // exact: positions are below 2^24 here
        each([&](float& y, int key) { y = fmaf(-slope, fabsf(distance - static_cast<float>(key - base)), y); });
      }
      if (c.mask) {
        const unsigned char* const mask =
            static_cast<const unsigned char*>(c.mask.data) + place_of(c.mask, tile, p) + tile.k_begin + base + first;
        with_pairs(r, base, keys, mask, [](float& y, unsigned char seen) { y = seen != 0 ? y : kHidden; });
      }
      if (n_ < full_begin_ || n_ >= full_end_) {
        each([&](float& y, int key) { y = static_cast<unsigned>(key) < static_cast<unsigned>(keys) ? y : kHidden; });
      }
    }
  }

  // Two adjacent values at once, where they lie at a multiple of their size.
  template <class Stored, class Change>
  KEEL_DEVICE void with_pairs(int r, int base, int keys, const Stored* row, const Change& change) {
    struct alignas(2 * sizeof(Stored)) Pair {
      Stored x[2];
    };
    const bool partial = n_ < full_begin_ || n_ >= full_end_;
    if (!partial && reinterpret_cast<std::uintptr_t>(row) % sizeof(Pair) == 0) {
#pragma unroll
      for (int j = 0; j < S::keys / 8; ++j) {
        const Pair pair = *reinterpret_cast<const Pair*>(row + 8 * j);
        change(s_[4 * j + 2 * r], pair.x[0]);
        change(s_[4 * j + 2 * r + 1], pair.x[1]);
      }
    } else {
#pragma unroll
      for (int j = 0; j < S::keys / 4; ++j) {
        const int key = base + j / 2 * 8 + (j & 1);
        if (static_cast<unsigned>(key) < static_cast<unsigned>(keys)) {
          change(s_[j / 2 * 4 + 2 * r + (j & 1)], row[j / 2 * 8 + (j & 1)]);
        }
      }
    }
  }

  // A finite bias stays finite in units of log 2, or becomes +inf, which is told below; its −inf masks.
  template <class Stored>
  KEEL_DEVICE void add_any_bias(int r, int base, int keys, const Stored* row) {
    with_pairs(r, base, keys, row, [](float& y, const Stored& stored) {
      const float b = static_cast<float>(stored);
      constexpr float kLog2e = 1.4426950408889634f, kLeast = -3.4028234e38f / kLog2e;
      y = b == -kInfinity ? kHidden : fmaf(fmaxf(b, kLeast), kLog2e, y);
    });
  }

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
#pragma unroll
      for (int c = 0; c < 2; ++c) {  // columns 8·c + column_ of 16, and the next
        const int counter = 16 * (group + g) + 8 * c + column_;
        DropoutKey keys[2][2];
#pragma unroll
        for (int i = 0; i < 4; ++i) keys[i / 2][i % 2] = dropout_key(a, heads[i / 2], tile.entry, counter + i % 2);
        std::uint32_t words[4][4];
        dropout_words(a, rows, keys, words);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
#pragma unroll
          for (int w = 0; w < (S::keys == 32 ? 2 : 4); ++w) {
            float& y = s_[4 * (8 * g + 2 * w + c) + i];
            y = (second_half ? words[i][(w + 2) & 3] : words[i][w]) >= a.threshold ? y : 0.0f;
          }
        }
      }
    }
  }

  KEEL_DEVICE void convert() {
#pragma unroll
    for (int i = 0; i < S::keys / 4; ++i) p_[i] = ptx::pack<Element>(s_[2 * i], s_[2 * i + 1]);
  }

  // ---- The end of a tile: sums become results.
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
    if (a_.partials.out != nullptr) {
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
    if (a_.call.sinks && a_.partials.out == nullptr) {
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
    if (kTerms == Terms::dropout || (kRich && a_.call.dropout > 0))
      x.factor *= static_cast<float>(1.0 / (1.0 - a_.call.dropout));
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
    const int i = tile.q_begin + place.row, d_v = static_cast<int>(a_.call.d_v);
#pragma unroll
    for (int j = 0; j < S::d / 4; ++j) {
      const int c = j / 2 * 8 + column_ + (j & 1);
      const float x = o_[j / 2 * 4 + 2 * r + (j & 1)];
      if (c >= d_v) continue;
      if (out.dtype == DType::f32) {
        at<float>(out, tile.batch, place.head, i, c) = x;
      } else {
        at<Element>(out, tile.batch, place.head, i, c) = static_cast<Element>(x);
      }
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

  Shared<Element, S>& shared_;
  const Maps& maps_;
  const ForwardArguments& a_;
  const int group_, thread_, lane_, warp_, column_;
  std::uint64_t q_, k_, v_;  // operands
  int step_ = 0;             // blocks of keys done, of all tiles
  int n_ = 0;                // the block whose scores are in s_
  int q_stage_ = 0;          // where the tile's q is
  int full_begin_ = 0, full_end_ = 0;
  int across_begin_ = 0, across_end_ = 0;  // blocks with keys on both sides of some row's position

  float o_[S::d / 2], s_[S::keys / 2];
  std::uint32_t p_[S::keys / 4];
  float a_factor_[2];
  float m_[2], l_[2];                    // largest score, sum of weights
  float e_[2];                           // Σ weight · (score − largest)
  float f1_[2], f2_[2];                  // sums of scores and their squares, less the largest, in units of log 2
  int count_[2], visible_[2];            // scores in those sums, and visible ones where they are counted
  float zero_[2];                        // NaN where a score was infinite or NaN
  float scale_log2_[2], slope_log2_[2];  // the slope divided by the scale, where it is the only term
  float base_[2];                        // of ALiBi alone
};

template <class Element, class S, Terms kTerms, Statistics kStatistics>
__global__ void __launch_bounds__(S::threads, 1)
    forward(const __grid_constant__ Maps maps, const __grid_constant__ ForwardArguments a) {
  using namespace ptx;
  extern __shared__ __align__(1024) char memory[];
  auto& shared = *reinterpret_cast<Shared<Element, S>*>(memory);
  const int group = __shfl_sync(~0u, threadIdx.x / 128, 0);
  if (threadIdx.x == 0) {
    const auto init = [](auto& barriers, int arrivals) {
      for (std::uint64_t& barrier : barriers) init_barrier(shared_address(&barrier), arrivals);
    };
    init(shared.tile_full, 1);
    init(shared.q_full, 1);
    init(shared.k_full, 1);
    init(shared.v_full, 1);
    init(shared.tile_empty, 4 * S::groups);
    init(shared.q_empty, S::groups);
    init(shared.k_empty, S::groups);
    init(shared.v_empty, S::groups);
    init(shared.term_full, 1);
    init(shared.term_empty, 4);
    shared.odd = -1;
    publish_barriers();
    for (const CUtensorMap* map : {&maps.q, &maps.k, &maps.v, &maps.out}) prefetch_map(*map);
  }
  __syncthreads();
  wait_for_last_kernel();
  if (group == 0) {
    give_registers<S::loader_registers>();
    if (threadIdx.x == 0) load_tiles<S, Element>(shared, maps, a);
    if (threadIdx.x == 32) choose_tiles<S, Element>(shared, a);
    if constexpr (S::term_bytes > 0) {
      if (threadIdx.x == 64) load_terms<S, Element>(shared, maps, a);
    }
  } else {
    take_registers<S::group_registers>();
    Group<Element, S, kTerms, kStatistics>(shared, maps, a, group - 1).run();
  }
}

}  // namespace keel::cuda::hopper
