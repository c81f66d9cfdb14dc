#pragma once

#include "cuda/hopper/forward_rows.cuh"
#include "cuda/hopper/softcap.cuh"
#include "cuda/hopper/term_tiles.cuh"

// What becomes of scores before the softmax: masks by position, a single term, or any.
namespace keel::cuda::hopper {

template <class Element, class S, Terms kTerms, Statistics kStatistics>
class Scores : protected Rows<Element, S, kTerms, kStatistics> {
 protected:
  using Base = Rows<Element, S, kTerms, kStatistics>;
  using Base::a_, Base::base_, Base::first_key, Base::group_, Base::hides_by_position, Base::kHidden, Base::kKeeps,
      Base::kLinear, Base::kSkips, Base::kTiled, Base::lane_, Base::n_, Base::place, Base::place_of,
      Base::release_by_warp, Base::s_, Base::scale_log2, Base::scale_log2_, Base::shared_, Base::slope_log2,
      Base::slope_log2_, Base::warp_, Base::zero_;
  using Base::Base;

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

  // Behind the fence, the copy engine may overwrite what was read: without it, some reads can still be under way.
  KEEL_DEVICE void release_term() {
    if constexpr (kTiled) {
      ptx::publish_to_copies();
      release_by_warp(shared_.term_empty[group_]);
    }
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
      release_term();
    }
  }

  // By the mask, and by position.
  template <bool kPartial>
  KEEL_DEVICE void hide(const Tile& tile) {
    if constexpr (kPartial || kTerms == Terms::mask) {
      std::uint32_t seen[2] = {~0u, ~0u};
      if constexpr (kTerms == Terms::mask) {
        read_mask(first_term<S>(a_, shared_.term[group_], warp_, lane_), lane_, seen);
        release_term();
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
          add_any_bias(tile, r, base, keys, static_cast<const float*>(c.bias.data) + from);
        } else {
          add_any_bias(tile, r, base, keys, static_cast<const Element*>(c.bias.data) + from);
        }
      }
      if (c.alibi) {
        const float distance = static_cast<float>(diagonal - base);  // exact: positions are below 2^24 here
        each([&](float& y, int key) { y = fmaf(-slope, fabsf(distance - static_cast<float>(key - base)), y); });
      }
      if (c.mask) {
        const unsigned char* const mask =
            static_cast<const unsigned char*>(c.mask.data) + place_of(c.mask, tile, p) + tile.k_begin + base + first;
        with_pairs(tile, r, base, keys, mask, [](float& y, unsigned char seen) { y = seen != 0 ? y : kHidden; });
      }
      if (hides_by_position(tile)) {
        each([&](float& y, int key) { y = static_cast<unsigned>(key) < static_cast<unsigned>(keys) ? y : kHidden; });
      }
    }
  }

  // Two adjacent values at once, where they lie at a multiple of their size.
  template <class Stored, class Change>
  KEEL_DEVICE void with_pairs(const Tile& tile, int r, int base, int keys, const Stored* row, const Change& change) {
    struct alignas(2 * sizeof(Stored)) Pair {
      Stored x[2];
    };
    if (!hides_by_position(tile) && reinterpret_cast<std::uintptr_t>(row) % sizeof(Pair) == 0) {
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
  KEEL_DEVICE void add_any_bias(const Tile& tile, int r, int base, int keys, const Stored* row) {
    with_pairs(tile, r, base, keys, row, [](float& y, const Stored& stored) {
      const float b = static_cast<float>(stored);
      constexpr float kLog2e = 1.4426950408889634f, kLeast = -3.4028234e38f / kLog2e;
      y = b == -kInfinity ? kHidden : fmaf(fmaxf(b, kLeast), kLog2e, y);
    });
  }
};

}  // namespace keel::cuda::hopper
