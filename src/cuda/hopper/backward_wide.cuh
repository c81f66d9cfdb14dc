#pragma once

#include "cuda/hopper/backward_loader.cuh"
#include "cuda/hopper/gradient_rows.cuh"
#include "cuda/hopper/terms.cuh"
#include "wgmma.cuh"

// The backward pass on Hopper for head sizes above 128, where the registers of a warpgroup do not hold both dk and dv of
// 64 keys; and for scores that need more than a mask by position, for which there are registers here. A CTA owns 64 keys and walks over blocks of 64 rows as backward.cuh says. The first warpgroup computes scores,
// p and dv; the second dp, ds and dk. p goes from the first to the second through shared memory, ds to both for dq, of
// which each computes half of the columns and adds them to the workspace from its registers. The first is about one block
// ahead of the second.
//
// Bound by the matrix units (2560 cycles per block) and by shared memory (about 2200).
namespace keel::cuda::hopper {

template <int kD, bool kTerms>
struct WideShapeOf {
  static constexpr int d = kD, rows = 64, keys = 64, panels = kD / 64;
  static constexpr bool terms = kTerms;
};

// Named barriers. p and ds (per stage): 256 threads; the turn of a warpgroup to add to dq, and when it has: 160, with the warp that
// waits for turns.
struct WideBarriers {
  static constexpr int kWeightsFull = 1, kWeightsEmpty = 2, kGradientsFull = 3, kSecond = 5, kTurn = 6, kAdded = 8,
                       kFirst = 10;
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
  std::uint64_t kv_full, q_full[2], q_empty[2], do_full[2], do_empty[2];
  KeyTile tile;
};

// Where a block of rows has its dq, and which block of keys it expects.
struct Slot {
  std::int64_t at;
  int turn;
};
KEEL_DEVICE Slot slot_of(const BackwardArguments& a, const KeyTile& tile, int g, int m) {
  const Call& f = a.call.forward;
  const std::int64_t head = tile.batch * f.q_heads + tile.head * f.group + g;
  return {head * a.cut.query_slots + tile.slot + m, tile.block - first_key_block(tile, a.window, a.cut, m)};
}

// The warp that gives the warpgroups their turns.
template <class Shared>
KEEL_DEVICE void order_dq(Shared& shared, const BackwardArguments& a) {
  using namespace ptx;
  const KeyTile& tile = shared.tile;
  const bool one = (threadIdx.x & 31) == 0;
  if (!a.ordered) return;
  for (int g = 0; g < static_cast<int>(a.call.forward.group); ++g) {
    for (int m = tile.block_end - 1; m >= tile.block_begin; --m) {
      const Slot slot = slot_of(a, tile, g, m);
      while (load_flag(a.turn + slot.at) != slot.turn) {
      }
      __syncwarp();
      signal(WideBarriers::kTurn + 1, 160);
      signal(WideBarriers::kTurn, 160);
      sync(WideBarriers::kAdded + 1, 160);
      sync(WideBarriers::kAdded, 160);
      __threadfence();
      if (one) store_flag(a.turn + slot.at, slot.turn + 1);
    }
  }
}

// All that a warpgroup does: the first, or the second.
template <class Element, class S, bool kFirst>
class WideGroup {
  static constexpr int kPanel = S::keys * 128, kStage = S::rows * S::d * 2, kDs = S::keys * S::rows * 2;
  static constexpr int kPart = 64;  // columns of dq at a time
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
    const KeyTile& tile = shared_.tile;
    begin_ = same(tile.block_begin);
    end_ = same(tile.block_end);
    full_begin_ = same(tile.full_begin);
    full_end_ = same(tile.full_end);
    const int group = static_cast<int>(a_.call.forward.group), steps = group * (end_ - begin_);
#pragma unroll
    for (int i = 0; i < S::d / 2; ++i) sum_[i] = 0;
    const double dropout = a_.call.forward.dropout;
    kept_ = dropout > 0 ? static_cast<float>(1.0 / (1.0 - dropout)) : 1.0f;
    const float scale = S::terms ? 1.0f : scale_of(a_, tile);
    if (steps > 0) {
      wait(shared_address(&shared_.kv_full), 0);
      if (!kFirst) signal(B::kWeightsEmpty, 256);
      int m = end_ - 1;
#pragma unroll 1
      for (int step = 0; step < steps; ++step) {
        block(step, m, scale * 1.4426950408889634f, step + 1 == steps);
        m = m == begin_ ? end_ - 1 : m - 1;
      }
      if (kFirst) add_dq(steps - 1);
    }
    const float factor = kFirst ? kept_ : scale;
#pragma unroll
    for (int i = 0; i < S::d / 2; ++i) sum_[i] *= factor;
    store_keys<Element>(a_, tile, key_, sum_, kFirst ? rows_of_dv(a_) : rows_of_dk(a_));
  }

 private:
  KEEL_DEVICE static int same(int x) { return __shfl_sync(~0u, x, 0); }  // a number that all lanes hold
  KEEL_DEVICE void release(std::uint64_t& barrier) {
    if (thread_ == 0) ptx::arrive(ptx::shared_address(&barrier));
  }

  KEEL_DEVICE void block(int step, int m, float scale_log2, bool last) {
    using namespace ptx;
    const bool partial = m < full_begin_ || m >= full_end_;
    const int stage = step & 1, phase = (step >> 1) & 1;
    const KeyTile& tile = shared_.tile;
    float s[S::rows / 2];
    std::uint32_t x[S::rows / 4];
    wait(shared_address(kFirst ? &shared_.q_full[stage] : &shared_.do_full[stage]), phase);
    scores(s, stage);
    if constexpr (kFirst) {
      if constexpr (S::terms) {
        const int head = tile.head * static_cast<int>(a_.call.forward.group) + step / (end_ - begin_);
        sync(B::kWeightsEmpty, 256);
        TermWeights<Element>(a_, tile, {head, tile.first_key + key_, m * S::rows})
            .run(s, shared_.lse_log2[stage], shared_.scale[stage],
                 [&](int i, float factor) { reinterpret_cast<float*>(&shared_.p[i / 4][thread_])[i % 4] = factor; });
        signal(B::kWeightsFull, 256);
        sync(B::kFirst, 128);
        release(shared_.q_empty[stage]);
      } else {
        weigh<S::rows>(s, scale_log2, shared_.lse_log2[stage]);
        if (partial) where_hidden<S::rows>(tile, a_.window, key_, m * S::rows, [&](int i) { s[i] = 0.0f; });
        share_weights(s, stage);
      }
    } else {
      float p[S::rows / 2];
      sync(B::kWeightsFull, 256);
#pragma unroll
      for (int i = 0; i < S::rows / 8; ++i) {
        const float4 four = shared_.p[i][thread_];
        p[4 * i] = four.x, p[4 * i + 1] = four.y, p[4 * i + 2] = four.z, p[4 * i + 3] = four.w;
      }
      if (!last) signal(B::kWeightsEmpty, 256);
      if constexpr (S::terms) {
        wait(shared_address(&shared_.q_full[stage]), phase);  // the scale came with q
        differentiate_terms(p, s, shared_.delta[stage], shared_.scale[stage], kept_);
      } else {
        differentiate<S::rows>(p, s, shared_.delta[stage]);
      }
      if (!S::terms && partial) {
        where_hidden<S::rows>(tile, a_.window, key_, m * S::rows, [&](int i) { s[i] = 0.0f; });
      }
    }
#pragma unroll
    for (int i = 0; i < S::rows / 4; ++i) x[i] = pack<Element>(s[2 * i], s[2 * i + 1]);
    if constexpr (kFirst) {
      wait(shared_address(&shared_.do_full[stage]), phase);
      add_up(x, stage);
      release(shared_.do_empty[stage]);
      if (step > 0) add_dq(step - 1);
    } else {
      share_ds(x, stage);
      release(shared_.do_empty[stage]);
      wait(shared_address(&shared_.q_full[stage]), phase);
      add_up(x, stage);
      release(shared_.q_empty[stage]);
      add_dq(step);
    }
  }

  KEEL_DEVICE void share_weights(const float (&p)[S::rows / 2], int stage) {
    ptx::sync(B::kWeightsEmpty, 256);
    release(shared_.q_empty[stage]);  // lse among it, which all threads have read by now
#pragma unroll
    for (int i = 0; i < S::rows / 8; ++i) {
      shared_.p[i][thread_] = make_float4(p[4 * i], p[4 * i + 1], p[4 * i + 2], p[4 * i + 3]);
    }
    ptx::signal(B::kWeightsFull, 256);
  }

  // k by q, or v by do
  KEEL_DEVICE void scores(float (&s)[S::rows / 2], int stage) {
    using namespace ptx;
    begin_products();
    hold(s);
#pragma unroll
    for (int c = 0; c < S::d / 16; ++c) {
      RowsByRows<Element, S::rows>::run(s, keys_ + further(c / 4 * kPanel + c % 4 * 32),
                                        rows_ + stage * further(kStage) + further(c / 4 * kPanel + c % 4 * 32), c > 0);
    }
    commit_products();
    wait_products<0>();
    hold(s);
  }

  // dv += p·do, or dk += ds·q
  KEEL_DEVICE void add_up(const std::uint32_t (&x)[S::rows / 4], int stage) {
    using namespace ptx;
    begin_products();
    hold(sum_);
#pragma unroll
    for (int c = 0; c < S::rows / 16; ++c) {
      RegistersByColumns<Element, S::d>::run(sum_, x + 4 * c, columns_ + stage * further(kStage) + further(c * 2048));
    }
    commit_products();
    wait_products<0>();
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

  // The warpgroup's columns of a block's dq, to the workspace.
  KEEL_DEVICE void add_dq(int step) {
    using namespace ptx;
    const int length = end_ - begin_, d = static_cast<int>(a_.call.forward.d_k);
    const Slot slot = slot_of(a_, shared_.tile, step / length, end_ - 1 - step % length);
    float* const to = a_.dq + slot.at * (S::rows * d);
    const bool stores = a_.ordered && slot.turn == 0;
    if (kFirst) sync(B::kGradientsFull + (step & 1), 256);
#pragma unroll
    for (int part = 0; part < S::d / 2 / kPart; ++part) {
      float dq[kPart / 2];
      begin_products();
      hold(dq);
#pragma unroll
      for (int c = 0; c < S::keys / 16; ++c) {
        ColumnsByColumns<Element, kPart>::run(dq, ds_ + (step & 1) * further(kDs) + further(c * 2048),
                                              k_columns_ + further(part * kPanel + c * 2048), c > 0);
      }
      commit_products();
      wait_products<0>();
      hold(dq);
      if (part == 0 && a_.ordered) sync(B::kTurn + (kFirst ? 0 : 1), 160);
      const int first = (kFirst ? 0 : S::d / 2) + part * kPart;
#pragma unroll
      for (int i = 0; i < kPart / 8; ++i) {
        if (first + 8 * i >= d) continue;
        float* const four = to + (first / 8 + i) * 512 + thread_ * 4;
        const float4 x = make_float4(dq[4 * i], dq[4 * i + 1], dq[4 * i + 2], dq[4 * i + 3]);
        if (stores) {
          *reinterpret_cast<float4*>(four) = x;
        } else {
          add_4(four, x);
        }
      }
    }
    if (a_.ordered) signal(B::kAdded + (kFirst ? 0 : 1), 160);
  }

  WideShared<Element, S>& shared_;
  const BackwardArguments& a_;
  const int thread_, lane_, warp_;
  const int key_;  // the thread's first, of the block
  // Operands: rows of k and q, or of v and do; columns of do, or of q; ds; the warpgroup's columns of k
  std::uint64_t keys_, rows_, columns_, ds_, k_columns_;
  int begin_ = 0, end_ = 0, full_begin_ = 0, full_end_ = 0;  // blocks of rows
  float kept_ = 1;                                           // dropout's factor
  float sum_[S::d / 2];                                      // dv, or dk
};

template <class Element, class S>
__global__ void __launch_bounds__(384, 1)
    backward_wide(const __grid_constant__ BackwardMaps maps, const __grid_constant__ BackwardArguments a) {
  using namespace ptx;
  extern __shared__ __align__(1024) char memory[];
  auto& shared = *reinterpret_cast<WideShared<Element, S>*>(memory);
  const int group = __shfl_sync(~0u, threadIdx.x / 128, 0);
  if (threadIdx.x == 0) begin_task(shared, a);
  __syncthreads();
  if (group == 0) {
    give_registers<24>();
    if (threadIdx.x == 0) load_blocks<S>(shared, maps, a);
    if (threadIdx.x / 32 == 1) order_dq(shared, a);
  } else {
    take_registers<240>();
    if (group == 1) {
      WideGroup<Element, S, true>(shared, a).run();
    } else {
      WideGroup<Element, S, false>(shared, a).run();
    }
  }
}

}  // namespace keel::cuda::hopper
