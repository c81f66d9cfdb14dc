#pragma once

#include "core/dropout.h"
#include "cuda/hopper/backward_loader.cuh"
#include "cuda/hopper/bias_sums.cuh"
#include "cuda/hopper/gradient_rows.cuh"
#include "cuda/hopper/terms.cuh"
#include "wgmma.cuh"

// The backward pass on Hopper for head sizes above 128, where a warpgroup's registers do not hold both dk and dv of
// 64 keys; and for scores that need more than a mask by position, for which there are registers here. A CTA takes
// blocks of 64 keys and walks over blocks of 64 rows, as backward.cuh says. The first warpgroup computes scores, p and
// dv; the second dp, ds and dk. p goes from the first to the second through shared memory, ds to both for dq, of which
// each computes half of the columns and adds them to the workspace from its registers. The first is about one block
// ahead.
//
// Bound by the matrix units (2560 cycles per block) and by shared memory (about 2200).
namespace keel::cuda::hopper {

template <int kD, bool kTerms>
struct WideShapeOf {
  static constexpr int d = kD, rows = 64, keys = 64, panels = kD / 64;
  static constexpr bool terms = kTerms;
};

// Named barriers. p and ds (per stage): 256 threads; the turn of a warpgroup to add to dq, and when it has: 160, with
// the warp that waits for turns; those of one warpgroup: 128.
struct WideBarriers {
  static constexpr int kWeightsFull = 1, kWeightsEmpty = 2, kGradientsFull = 3, kFirst = 5, kSecond = 6, kTurn = 7,
                       kAdded = 11;
};

template <class Element, class S>
struct WideShared {
  alignas(1024) Element k[S::keys * S::d];
  alignas(1024) Element v[S::keys * S::d];
  alignas(1024) Element q[2][S::rows * S::d];
  alignas(1024) Element dout[2][S::rows * S::d];
  alignas(1024) Element ds[2][S::keys * S::rows];
  alignas(1024) float4 p[S::rows / 8][128];  // as the first warpgroup's threads hold it; with terms, their factors
  alignas(16) float lse_log2[2][S::rows];
  alignas(16) float delta[2][S::rows];
  alignas(16) float scale[2][S::terms ? S::rows : 4];
  float bias_keys[S::terms ? S::keys : 1];  // sums of dbias, of BiasSums::keys
  LoadBarriers loads;
};

// Where a block of rows has its dq, and which block of keys it expects.
struct Slot {
  std::int64_t at;
  int turn;
};
template <class S>
KEEL_DEVICE Slot slot_of(const BackwardArguments& a, const KeyTile& tile, int g, int m) {
  const Call& f = a.call.forward;
  const std::int64_t head = tile.batch * f.q_heads + tile.head * f.group + g;
  return {head * a.cut.query_slots + tile.slot + m, tile.block - first_key_block(tile, a.window, S::rows, S::keys, m)};
}

// Two warps give the warpgroups their turns, for every other block of rows each: what one adds reaches memory while the
// other waits for the next turn.
template <class S, class Shared>
KEEL_DEVICE void order_dq(Shared& shared, const BackwardArguments& a) {
  using namespace ptx;
  using B = WideBarriers;
  const bool one = (threadIdx.x & 31) == 0;
  const int parity = __shfl_sync(~0u, threadIdx.x / 32 - 1, 0);
  int step = 0;
  for (int round = 0;; ++round) {
    const KeyTile& tile = task_of(shared.loads, round);
    if (tile.entry < 0) break;
    __syncwarp();                                             // all lanes have read the last round's tile
    if (one) arrive(shared_address(&shared.loads.kv_empty));  // of the last round
    for (int g = 0; g < static_cast<int>(a.call.forward.group); ++g) {
      for (int m = tile.block_end - 1; m >= tile.block_begin; --m, ++step) {
        if ((step & 1) != parity) continue;
        const Slot slot = slot_of<S>(a, tile, g, m);
        if (slot.turn > 0) {
          while (!may_add(a.ordered, load_flag(a.turn + slot.at), slot.turn)) {
          }
        }
        __syncwarp();
        signal(B::kTurn + 2 * parity + 1, 160);
        signal(B::kTurn + 2 * parity, 160);
        sync(B::kAdded + 2 * parity + 1, 160);
        sync(B::kAdded + 2 * parity, 160);
        if (!a.ordered && slot.turn > 0) continue;
        if (one) store_flag(a.turn + slot.at, slot.turn + 1);
      }
    }
  }
}

// All that a warpgroup does: the first, or the second.
template <class Element, class S, bool kFirst>
class WideGroup {
  static constexpr int kPanel = S::keys * 128, kStage = S::rows * S::d * 2, kDs = S::keys * S::rows * 2;
  static constexpr int kPart = 64, kParts = S::d / 2 / kPart;  // columns of dq at a time
  static_assert(kParts <= 2);
  using B = WideBarriers;

 public:
  KEEL_DEVICE WideGroup(WideShared<Element, S>& shared, const BackwardArguments& a)
      : shared_(shared),
        a_(a),
        thread_(threadIdx.x & 127),
        lane_(threadIdx.x & 31),
        warp_(thread_ >> 5),
        key_(warp_ * 16 + lane_ / 4) {
    using ptx::operand, ptx::shared_address;
    keys_ = operand(shared_address(kFirst ? shared.k : shared.v), 16);
    rows_ = operand(shared_address(kFirst ? shared.q[0] : shared.dout[0]), 16);
    columns_ = operand(shared_address(kFirst ? shared.dout[0] : shared.q[0]), kPanel);
    ds_ = operand(shared_address(shared.ds[0]), kPanel);
    k_columns_ = operand(shared_address(shared.k) + (kFirst ? 0 : S::panels / 2 * kPanel), kPanel);
  }

  KEEL_DEVICE void run() {
    using namespace ptx;
    kept_ = static_cast<float>(Dropout(a_.call.forward.dropout, a_.call.forward.seed).factor);
    if (!kFirst) signal(B::kWeightsEmpty, 256);
    if (S::terms && !kFirst && thread_ < S::keys) shared_.bias_keys[thread_] = 0.0f;
    for (int round = 0;; ++round) {
      tile_ = &task_of(shared_.loads, round);
      if (tile_->entry < 0) break;
      begin_ = same(tile_->block_begin);
      end_ = same(tile_->block_end);
      full_begin_ = same(tile_->full_begin);
      full_end_ = same(tile_->full_end);
      first_ = step_;
      const int last = step_ + static_cast<int>(a_.call.forward.group) * (end_ - begin_);
      const float scale = S::terms ? 1.0f : scale_of(a_, *tile_);
      scale_log2_ = scale * 1.4426950408889634f;
#pragma unroll
      for (int i = 0; i < S::d / 2; ++i) sum_[i] = 0;
      g_ = 0;
      int m = end_ - 1;
#pragma unroll 1
      for (; step_ < last; ++step_) {
        block(m);
        if (--m < begin_) ++g_, m = end_ - 1;
      }
      if (kFirst && last > first_) finish_dq();
      sync(kFirst ? B::kFirst : B::kSecond, 128);
      release(shared_.loads.kv_empty);
      const float factor = kFirst ? kept_ : scale;
#pragma unroll
      for (int i = 0; i < S::d / 2; ++i) sum_[i] *= factor;
      store_keys<Element>(a_, *tile_, key_, sum_, kFirst ? rows_of_dv(a_) : rows_of_dk(a_));
    }
  }

 private:
  KEEL_DEVICE static int same(int x) { return __shfl_sync(~0u, x, 0); }  // a number that all lanes hold
  KEEL_DEVICE void release(std::uint64_t& barrier) {
    if (thread_ == 0) ptx::arrive(ptx::shared_address(&barrier));
  }

  // The first part of dq, in the first warpgroup that of the last block, leaves while dv or dk is under way.
  KEEL_DEVICE void block(int m) {
    using namespace ptx;
    LoadBarriers& loads = shared_.loads;
    const int stage = same(step_ & 1), phase = (step_ >> 1) & 1;
    float s[S::rows / 2];
    std::uint32_t x[S::rows / 4];
    wait(shared_address(kFirst ? &loads.q_full[stage] : &loads.do_full[stage]), phase);
    begin_scores(s, stage);
    if (!kFirst) {
      find_slot(g_, m);
    } else if (step_ > first_) {
      find_slot(m + 1 < end_ ? g_ : g_ - 1, m + 1 < end_ ? m + 1 : begin_);
    }
    wait_products<0>();
    hold(s);
    if constexpr (kFirst) {
      weights(s, m, stage);
      pack_all<Element>(s, x);
      wait(shared_address(&loads.do_full[stage]), phase);
      if (step_ > first_) sync(B::kGradientsFull + (stage ^ 1), 256);
    } else {
      gradients(s, m, stage);
      pack_all<Element>(s, x);
      share_ds(x, stage);
      release(loads.do_empty[stage]);
      wait(shared_address(&loads.q_full[stage]), phase);
      if constexpr (S::terms) {
        scale_rows(s, shared_.scale[stage]);
        pack_all<Element>(s, x);
      }
    }
    const int dq_stage = kFirst ? stage ^ 1 : stage;
    const bool has_dq = !kFirst || step_ > first_;
    begin_dq(dq_stage, 0);
    add_up(x, stage);
    wait_products<1>();
    hold(dq_);
    if (has_dq) put_dq(dq_stage, 0);
    if constexpr (kParts == 2) begin_dq(dq_stage, 1);
    wait_products<0>();
    hold(dq_);
    hold(sum_);
    release(kFirst ? loads.do_empty[stage] : loads.q_empty[stage]);
    if (kParts == 2 && has_dq) put_dq(dq_stage, 1);
  }

  // p, for both warpgroups
  KEEL_DEVICE void weights(float (&s)[S::rows / 2], int m, int stage) {
    using namespace ptx;
    if constexpr (S::terms) {
      sync(B::kWeightsEmpty, 256);
      TermWeights<Element>(a_, *tile_, pairs(m))
          .run(s, shared_.lse_log2[stage], shared_.scale[stage], [&](int i, float p, float slope) {
            if (slopes_apart()) {
              slopes(stage)[i / 2 * 256 + i % 2] = __float2half(slope);
            } else if (p != kHiddenMark) {
              p *= slope;
            }
            reinterpret_cast<float*>(&shared_.p[i / 4][thread_])[i % 4] = p;
          });
    } else {
      weigh<S::rows>(s, scale_log2_, shared_.lse_log2[stage]);
      hide(s, m);
      sync(B::kWeightsEmpty, 256);
#pragma unroll
      for (int i = 0; i < S::rows / 8; ++i) {
        shared_.p[i][thread_] = make_float4(s[4 * i], s[4 * i + 1], s[4 * i + 2], s[4 * i + 3]);
      }
    }
    signal(B::kWeightsFull, 256);
    sync(B::kFirst, 128);  // all threads have read lse, which came with q
    release(shared_.loads.q_empty[stage]);
  }

  // ds, in place of dp
  KEEL_DEVICE void gradients(float (&s)[S::rows / 2], int m, int stage) {
    using namespace ptx;
    float p[S::rows / 2];
    sync(B::kWeightsFull, 256);
#pragma unroll
    for (int i = 0; i < S::rows / 8; ++i) {
      const float4 four = shared_.p[i][thread_];
      p[4 * i] = four.x, p[4 * i + 1] = four.y, p[4 * i + 2] = four.z, p[4 * i + 3] = four.w;
    }
    signal(B::kWeightsEmpty, 256);
    if constexpr (S::terms) {
      differentiate_terms(p, s, shared_.delta[stage], kept_);
      if (a_.bias != BiasSums::none) bias_gradients(s, m, stage);
    } else {
      differentiate<S::rows>(p, s, shared_.delta[stage]);
      hide(s, m);
    }
  }

  // dbias is ds without the softcap's slope, by which ds is then multiplied. The slopes come from the first warpgroup
  // in f16, where ds goes afterwards: it is free from when the first warpgroup may write p.
  KEEL_DEVICE bool slopes_apart() const { return a_.call.forward.softcap > 0 && a_.bias != BiasSums::none; }
  KEEL_DEVICE __half* slopes(int stage) const { return reinterpret_cast<__half*>(shared_.ds[stage]) + 2 * thread_; }

  KEEL_DEVICE void bias_gradients(float (&ds)[S::rows / 2], int m, int stage) {
    const auto meet = [] { ptx::sync(B::kSecond, 128); };
    const Pairs at = pairs(m);
    if (a_.bias == BiasSums::pairs) {
      store_bias_gradients<Element>(a_.call.dbias, *tile_, at, ds);
    } else if (a_.bias == BiasSums::tiles) {
      add_bias_tile(a_, bias_turn_of(a_, *tile_, at.head, m), thread_, ds, meet);
    } else {
      add_bias_keys(shared_.bias_keys, key_, ds);
      if (m == begin_) put_bias_keys(a_, *tile_, at.head, shared_.bias_keys, key_);
    }
    if (!slopes_apart()) return;
#pragma unroll
    for (int i = 0; i < S::rows / 2; ++i) {
      const float slope = __half2float(slopes(stage)[i / 2 * 256 + i % 2]);
      ds[i] = ds[i] == 0.0f ? ds[i] : ds[i] * slope;
    }
    meet();  // all threads have read their slopes
  }

  KEEL_DEVICE void hide(float (&s)[S::rows / 2], int m) const {
    if (m >= full_begin_ && m < full_end_) return;
    where_hidden<S::rows>(*tile_, a_.window, key_, m * S::rows, [&](int i) { s[i] = 0.0f; });
  }

  KEEL_DEVICE Pairs pairs(int m) const {
    return {tile_->head * static_cast<int>(a_.call.forward.group) + g_, tile_->first_key + key_, m * S::rows};
  }

  // k by q, or v by do
  KEEL_DEVICE void begin_scores(float (&s)[S::rows / 2], int stage) {
    using namespace ptx;
    begin_products();
    hold(s);
#pragma unroll
    for (int c = 0; c < S::d / 16; ++c) {
      RowsByRows<Element, S::rows>::run(s, keys_ + further(c / 4 * kPanel + c % 4 * 32),
                                        rows_ + stage * further(kStage) + further(c / 4 * kPanel + c % 4 * 32), c > 0);
    }
    commit_products();
    hold(s);
  }

  // dv += p·do, or dk += ds·q
  KEEL_DEVICE void add_up(const std::uint32_t (&x)[S::rows / 4], int stage) {
    using namespace ptx;
    hold(sum_);
#pragma unroll
    for (int c = 0; c < S::rows / 16; ++c) {
      RegistersByColumns<Element, S::d>::run(sum_, x + 4 * c, columns_ + stage * further(kStage) + further(c * 2048));
    }
    commit_products();
    hold(sum_);
  }

  KEEL_DEVICE void share_ds(const std::uint32_t (&x)[S::rows / 4], int stage) {
    using namespace ptx;
#pragma unroll
    for (int j = 0; j < S::rows / 16; ++j) {
      store_16x16(shared_address(shared_.ds[stage]), warp_ * 16, j % 4 * 2, lane_,
                  {x[4 * j], x[4 * j + 1], x[4 * j + 2], x[4 * j + 3]});
    }
    publish_to_copies();
    sync(B::kSecond, 128);
    signal(B::kGradientsFull + stage, 256);
  }

  // A part of the warpgroup's columns of a block's dq.
  KEEL_DEVICE void begin_dq(int stage, int part) {
    using namespace ptx;
    begin_products();
    hold(dq_);
#pragma unroll
    for (int c = 0; c < S::keys / 16; ++c) {
      ColumnsByColumns<Element, kPart>::run(dq_, ds_ + stage * further(kDs) + further(c * 2048),
                                            k_columns_ + part * further(kPanel) + further(c * 2048), c > 0);
    }
    commit_products();
    hold(dq_);
  }

  // Finds the place of a block's dq.
  KEEL_DEVICE void find_slot(int g, int m) {
    const Slot slot = slot_of<S>(a_, *tile_, g, m);
    to_ = a_.dq + slot.at * (S::rows * a_.call.forward.d_k) + thread_ * 4;
    stores_ = slot.turn == 0;
  }

  // Adds a part there, the first when it is the warpgroup's turn.
  KEEL_DEVICE void put_dq(int stage, int part) {
    const int barrier = 2 * stage + (kFirst ? 0 : 1);
    if (part == 0) ptx::sync(B::kTurn + barrier, 160);
    const int first = (kFirst ? 0 : S::d / 2) + part * kPart, d = static_cast<int>(a_.call.forward.d_k);
    const auto for_each_four = [&](auto&& put) {
#pragma unroll
      for (int i = 0; i < kPart / 8; ++i) {
        if (first + 8 * i >= d) continue;
        put(to_ + (first / 8 + i) * 512, make_float4(dq_[4 * i], dq_[4 * i + 1], dq_[4 * i + 2], dq_[4 * i + 3]));
      }
    };
    if (stores_) {
      for_each_four([](float* to, const float4& x) { *reinterpret_cast<float4*>(to) = x; });
    } else {
      for_each_four([](float* to, const float4& x) { ptx::add_4(to, x); });
    }
    if (part == kParts - 1) ptx::signal(B::kAdded + barrier, 160);
  }

  // The task's last block, in the first warpgroup.
  KEEL_DEVICE void finish_dq() {
    using namespace ptx;
    const int stage = same((step_ - 1) & 1);
    sync(B::kGradientsFull + stage, 256);
    find_slot(g_ - 1, begin_);
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
      begin_dq(stage, part);
      wait_products<0>();
      hold(dq_);
      put_dq(stage, part);
    }
  }

  WideShared<Element, S>& shared_;
  const BackwardArguments& a_;
  const int thread_, lane_, warp_;
  const int key_;  // the thread's first, of the block
  // Operands: rows of k and q, or of v and do; columns of do, or of q; ds; the warpgroup's columns of k
  std::uint64_t keys_, rows_, columns_, ds_, k_columns_;
  const KeyTile* tile_ = nullptr;
  int begin_ = 0, end_ = 0, full_begin_ = 0, full_end_ = 0;  // blocks of rows
  int step_ = 0, first_ = 0;                                 // blocks done, of all heads and tasks; the task's first
  int g_ = 0;                                                // the query head, of those that share the keys
  float scale_log2_ = 0;
  float kept_ = 1;  // dropout's factor
  float* to_ = nullptr;
  bool stores_ = false;  // there, instead of adding
  float sum_[S::d / 2];  // dv, or dk
  float dq_[kPart / 2];
};

template <class Element, class S>
__global__ void __launch_bounds__(384, 1)
    backward_wide(const __grid_constant__ BackwardMaps maps, const __grid_constant__ BackwardArguments a) {
  extern __shared__ __align__(1024) char memory[];
  auto& shared = *reinterpret_cast<WideShared<Element, S>*>(memory);
  share_roles<S>(
      shared, maps, a, [&] { order_dq<S>(shared, a); },
      [&](int group) {
        if (group == 0) {
          WideGroup<Element, S, true>(shared, a).run();
        } else {
          WideGroup<Element, S, false>(shared, a).run();
        }
      });
}

}  // namespace keel::cuda::hopper
