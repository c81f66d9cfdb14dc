#pragma once

#include <math_constants.h>

#include <limits>

#include "cuda/hopper/backward.h"
#include "cuda/hopper/backward_loader.cuh"
#include "cuda/hopper/gradient_rows.cuh"
#include "wgmma.cuh"

// The backward pass on Hopper, 16-bit in, sums in f32.
//
//   p = e^(s − lse)    dp = do·v    ds = p·(dp − delta)    delta = do·o − dlse
//   dv_j = Σ_i p·do_i    dk_j = scale·Σ_i ds·q_i    dq_i = scale·Σ_j ds·k_j
//
// A CTA takes blocks of keys, one after another, and walks over the blocks of rows that see them, from the last to the
// first, for each query head that shares the keys. Two warpgroups have 64 keys each and hold their dk and dv in
// registers. Scores are computed transposed, rows being keys, so that p and ds are already the register operands of dv
// and dk; ds goes through shared memory once, for dq. dq leaves as f32 through shared memory: one warp adds it to the
// workspace, where every block of rows takes its blocks of keys in ascending order, so the bits are the same every
// time.
//
// Bound, on an H200, by shared memory (2944 cycles per 64 × 128 pairs at d 128, for 2560 of the matrix units) and by
// the work on scores, in which both warpgroups are at the same time.
//
// A thread holds two keys of its warpgroup's accumulators, lane / 4 and lane / 4 + 8 of its warp's 16; of the scores,
// rows 8·i + 2·(lane mod 4) of the block and the next. Element i of an array of accumulators belongs to key
// (i / 2) mod 2.
//
// What is hidden has p = ds = 0, but 0 · NaN is NaN in a product. NaN stays NaN in a sum: a row of a gradient that ends
// up as NaN or infinite is noted, and computed again by the plain kernel, which never touches what is hidden.
namespace keel::cuda::hopper {

// A kernel's tile: head sizes up to kD, blocks of kRows rows and 128 keys.
template <int kD, int kRows>
struct BackwardShapeOf {
  static constexpr int d = kD, rows = kRows, keys = 128, panels = kD / 64;
  static constexpr bool by_rows = kRows == 128;  // of dq a warpgroup takes 64 rows; else half of the columns
  static constexpr bool terms = false;
};

// Named barriers: of both warpgroups; of a warpgroup and the warp that sends dq, per warpgroup and buffer.
template <class S>
struct Barriers {
  static constexpr int kGroups = 1, kDqFull = 4, kDqEmpty = 8;
};

template <class Element, class S>
struct BackwardShared {
  alignas(1024) Element k[S::keys * S::d];
  alignas(1024) Element v[S::keys * S::d];
  alignas(1024) Element q[2][S::rows * S::d];
  alignas(1024) Element dout[2][S::rows * S::d];
  alignas(1024) Element ds[2][S::keys * S::rows];
  alignas(1024) float dq[2][S::rows * S::d];  // on its way out
  alignas(16) float lse_log2[2][S::rows];
  alignas(16) float delta[2][S::rows];
  LoadBarriers loads;
};

// Two warps add dq to the workspace, every other block of rows each, from a buffer of its own: adding takes about as
// long as a block, from the turn that it waits for to the turn that it gives.
template <class Element, class S>
class DqSender {
  using B = Barriers<S>;

 public:
  KEEL_DEVICE DqSender(BackwardShared<Element, S>& shared, const BackwardArguments& a)
      : shared_(shared), a_(a), one_((threadIdx.x & 31) == 0), buffer_(__shfl_sync(~0u, threadIdx.x / 32 - 1, 0)) {}

  KEEL_DEVICE void run() {
    using namespace ptx;
    const int group = static_cast<int>(a_.call.forward.group);
    signal_empty();
    int step = 0;  // blocks of rows, of all tasks
    for (int round = 0;; ++round) {
      const KeyTile& tile = task_of(shared_.loads, round);
      if (tile.entry < 0) break;
      __syncwarp();                                               // all lanes have read the last round's tile
      if (one_) arrive(shared_address(&shared_.loads.kv_empty));  // of the last round
      for (int g = 0; g < group; ++g) {
        const std::int64_t head = std::int64_t{tile.batch} * a_.call.forward.q_heads + tile.head * group + g;
        const std::int64_t slots = head * a_.cut.query_slots + tile.slot;
        for (int m = tile.block_end - 1; m >= tile.block_begin; --m, ++step) {
          if ((step & 1) != buffer_) continue;
          send(slots + m, tile.block - first_key_block(tile, a_.window, S::rows, S::keys, m));
        }
      }
    }
    if (one_) wait_until_stored();
  }

 private:
  KEEL_DEVICE void signal_empty() const {
    for (int w = 0; w < 2; ++w) ptx::signal(B::kDqEmpty + w + 2 * buffer_, 160);
  }

  KEEL_DEVICE void send(std::int64_t slot, int turn) {
    using namespace ptx;
    const int d = static_cast<int>(a_.call.forward.d_k);
    float* const to = a_.dq + slot * (S::rows * d);
    if (one_ && turn > 0) {
      while (!may_add(a_.ordered, load_flag(a_.turn + slot), turn)) {
      }
      order_copies();
    }
    __syncwarp();
#pragma unroll
    for (int w = 0; w < 2; ++w) {
      sync(B::kDqFull + w + 2 * buffer_, 160);
      // Of 64 rows and all columns, or of all rows and half of the columns, those that dq has.
      const int columns = S::by_rows ? d : max(min(d - w * S::d / 2, S::d / 2), 0);
      const int place = S::by_rows ? w * 64 * d : w * 64 * (S::d / 2);
      if (one_) {
        const std::uint32_t from = shared_address(shared_.dq[buffer_]) + w * S::rows * S::d * 2;
        if (columns > 0 && turn == 0) {
          store_bytes(to + place, from, columns * 64 * 4);
        } else if (columns > 0) {
          add_floats(to + place, from, columns * 64 * 4);
        }
        commit_stores();
      }
    }
    if (one_) wait_until_stores_have_read();
    __syncwarp();
    signal_empty();
    if ((a_.ordered || turn == 0) && one_) {
      wait_until_stored();
      order_copies();
      store_flag(a_.turn + slot, turn + 1);
    }
  }

  BackwardShared<Element, S>& shared_;
  const BackwardArguments& a_;
  const bool one_;
  const int buffer_;
};

// All that a warpgroup does.
template <class Element, class S>
class KeyGroup {
  static constexpr int kPanelQ = S::rows * 128, kPanelK = S::keys * 128, kStage = S::rows * S::d * 2;
  static constexpr int kDs = S::keys * S::rows * 2;
  static constexpr int kDqColumns = S::by_rows ? S::d : S::d / 2;  // per warpgroup
  using B = Barriers<S>;

 public:
  KEEL_DEVICE KeyGroup(BackwardShared<Element, S>& shared, const BackwardArguments& a, int group)
      : shared_(shared),
        a_(a),
        group_(group),
        thread_(threadIdx.x & 127),
        lane_(threadIdx.x & 31),
        warp_(thread_ >> 5),
        key_(group * 64 + warp_ * 16 + lane_ / 4) {
    using ptx::operand, ptx::shared_address;
    k_rows_ = operand(shared_address(shared.k) + group * 64 * 128, 16);
    v_rows_ = operand(shared_address(shared.v) + group * 64 * 128, 16);
    q_rows_ = operand(shared_address(shared.q[0]), 16);
    do_rows_ = operand(shared_address(shared.dout[0]), 16);
    q_columns_ = operand(shared_address(shared.q[0]), kPanelQ);
    do_columns_ = operand(shared_address(shared.dout[0]), kPanelQ);
    ds_columns_ = operand(shared_address(shared.ds[0]) + (S::by_rows ? group * kPanelK : 0), kPanelK);
    k_columns_ = operand(shared_address(shared.k) + (S::by_rows ? 0 : group * kDqColumns / 64 * kPanelK), kPanelK);
  }

  KEEL_DEVICE void run() {
    for (int round = 0;; ++round) {
      tile_ = &task_of(shared_.loads, round);
      if (tile_->entry < 0) break;
      const int begin = same(tile_->block_begin), end = same(tile_->block_end);
      full_begin_ = same(tile_->full_begin);
      full_end_ = same(tile_->full_end);
      const int last = step_ + static_cast<int>(a_.call.forward.group) * (end - begin);
      const float scale = scale_of(a_, *tile_);
      scale_log2_ = scale * 1.4426950408889634f;
#pragma unroll
      for (int i = 0; i < S::d / 2; ++i) dv_[i] = 0;
      clear_dk();
      int m = end - 1;
#pragma unroll 1
      for (; step_ < last; ++step_) {
        block(m);
        m = m == begin ? end - 1 : m - 1;
      }
      ptx::wait_products<0>();
      ptx::hold(dk_);
      if (end > begin) release(shared_.loads.q_empty[(step_ & 1) ^ 1]);
      ptx::sync(B::kGroups, 256);
      release(shared_.loads.kv_empty);
#pragma unroll
      for (int i = 0; i < S::d / 2; ++i) dk_[i] *= scale;
      store_keys<Element>(a_, *tile_, key_, dk_, rows_of_dk(a_));
      store_keys<Element>(a_, *tile_, key_, dv_, rows_of_dv(a_));
    }
  }

 private:
  KEEL_DEVICE static int same(int x) { return __shfl_sync(~0u, x, 0); }  // a number that all lanes hold
  KEEL_DEVICE void release(std::uint64_t& barrier) {
    if (thread_ == 0) ptx::arrive(ptx::shared_address(&barrier));
  }

  // By a product, as whatever begins the loop in flight must be one.
  KEEL_DEVICE void clear_dk() {
    using namespace ptx;
    Element* const zeros = shared_.ds[(step_ & 1) ^ 1];
    for (int i = thread_; i < S::keys * S::rows / 8; i += 128) {
      reinterpret_cast<uint4*>(zeros)[i] = make_uint4(0, 0, 0, 0);
    }
    publish_to_copies();
    sync(B::kGroups, 256);
    begin_products();
    RegistersByColumns<Element, S::d>::clear(dk_, operand(shared_address(zeros), kPanelQ));
    commit_products();
    fresh_ = true;
  }

  // rows of k by q, or of v by do
  KEEL_DEVICE void scores(float (&s)[S::rows / 2], std::uint64_t keys, std::uint64_t rows, int stage) {
    using namespace ptx;
    begin_products();
    hold(s);
#pragma unroll
    for (int c = 0; c < S::d / 16; ++c) {
      RowsByRows<Element, S::rows>::run(s, keys + further(c / 4 * kPanelK + c % 4 * 32),
                                        rows + stage * further(kStage) + further(c / 4 * kPanelQ + c % 4 * 32), c > 0);
    }
    commit_products();
    hold(s);
  }

  KEEL_DEVICE void block(int m) {
    using namespace ptx;
    const bool partial = m < full_begin_ || m >= full_end_;
    const int stage = step_ & 1, phase = (step_ >> 1) & 1;
    float s[S::rows / 2], dp[S::rows / 2];
    // Scores, queued behind the last block's dk.
    wait(shared_address(&shared_.loads.q_full[stage]), phase);
    scores(s, k_rows_, q_rows_, stage);
    wait_products<1>();
    if (!fresh_) release(shared_.loads.q_empty[stage ^ 1]);
    fresh_ = false;
    wait(shared_address(&shared_.loads.do_full[stage]), phase);
    scores(dp, v_rows_, do_rows_, stage);
    wait_products<1>();
    hold(s);
    weigh<S::rows>(s, scale_log2_, shared_.lse_log2[stage]);
    if (partial) where_hidden<S::rows>(*tile_, a_.window, key_, m * S::rows, [&](int i) { s[i] = 0.0f; });
    std::uint32_t p[S::rows / 4], x[S::rows / 4];
    pack_all<Element>(s, p);
    begin_products();
    hold(dv_);
#pragma unroll
    for (int c = 0; c < S::rows / 16; ++c) {
      RegistersByColumns<Element, S::d>::run(dv_, p + 4 * c, do_columns_ + stage * further(kStage) + further(c * 2048));
    }
    commit_products();
    hold(dv_);
    wait_products<1>();
    hold(dp);
    // ds, while dv is on its way.
    differentiate<S::rows>(s, dp, shared_.delta[stage]);
    if (partial) where_hidden<S::rows>(*tile_, a_.window, key_, m * S::rows, [&](int i) { dp[i] = 0.0f; });
    pack_all<Element>(dp, x);
    share_ds(x, stage);
    dq_and_dk(x, stage);
  }

  // To shared memory, as panels of 64 rows: (panel, key, row of the panel).
  KEEL_DEVICE void share_ds(const std::uint32_t (&x)[S::rows / 4], int stage) {
    using namespace ptx;
#pragma unroll
    for (int j = 0; j < S::rows / 16; ++j) {
      store_16x16(shared_address(shared_.ds[stage]) + j / 4 * kPanelK, group_ * 64 + warp_ * 16, j % 4 * 2, lane_,
                  {x[4 * j], x[4 * j + 1], x[4 * j + 2], x[4 * j + 3]});
    }
    publish_to_copies();
    sync(B::kGroups, 256);
  }

  KEEL_DEVICE void dq_and_dk(const std::uint32_t (&x)[S::rows / 4], int stage) {
    using namespace ptx;
    float dq[kDqColumns / 2];
    begin_products();
    hold(dq);
#pragma unroll
    for (int c = 0; c < S::keys / 16; ++c) {
      ColumnsByColumns<Element, kDqColumns>::run(dq, ds_columns_ + stage * further(kDs) + further(c * 2048),
                                                 k_columns_ + further(c * 2048), c > 0);
    }
    commit_products();
    hold(dq);
#pragma unroll
    for (int c = 0; c < S::rows / 16; ++c) {
      RegistersByColumns<Element, S::d>::run(dk_, x + 4 * c, q_columns_ + stage * further(kStage) + further(c * 2048));
    }
    commit_products();
    wait_products<1>();
    hold(dv_);
    hold(dq);
    release(shared_.loads.do_empty[stage]);
    // dq leaves while dk is on its way.
    const int buffer = stage;
    sync(B::kDqEmpty + group_ + 2 * buffer, 160);
#pragma unroll
    for (int i = 0; i < kDqColumns / 8; ++i) {
      *reinterpret_cast<float4*>(&shared_.dq[buffer][group_ * (S::rows * S::d / 2) + i * 512 + thread_ * 4]) =
          make_float4(dq[4 * i], dq[4 * i + 1], dq[4 * i + 2], dq[4 * i + 3]);
    }
    publish_to_copies();
    signal(B::kDqFull + group_ + 2 * buffer, 160);
  }

  BackwardShared<Element, S>& shared_;
  const BackwardArguments& a_;
  const int group_, thread_, lane_, warp_;
  const int key_;  // the thread's first, of the block
  // Operands: rows of 16 columns, or columns of 16 rows.
  std::uint64_t k_rows_, v_rows_, q_rows_, do_rows_, q_columns_, do_columns_, ds_columns_, k_columns_;
  const KeyTile* tile_ = nullptr;
  int step_ = 0;       // blocks of rows done, of all heads and tasks
  bool fresh_ = true;  // no block of the task is done
  int full_begin_ = 0, full_end_ = 0;
  float scale_log2_ = 0;
  float dk_[S::d / 2], dv_[S::d / 2];
};

template <class Element, class S>
__global__ void __launch_bounds__(384, 1)
    backward(const __grid_constant__ BackwardMaps maps, const __grid_constant__ BackwardArguments a) {
  extern __shared__ __align__(1024) char memory[];
  auto& shared = *reinterpret_cast<BackwardShared<Element, S>*>(memory);
  share_roles<S>(
      shared, maps, a, [&] { DqSender<Element, S>(shared, a).run(); },
      [&](int group) { KeyGroup<Element, S>(shared, a, group).run(); });
}

}  // namespace keel::cuda::hopper
