#pragma once

#include "cuda/hopper/backward.h"
#include "cuda/hopper/ptx.cuh"

// The roles of a backward kernel's threads, and the thread that loads what its warpgroups share.
namespace keel::cuda::hopper {

struct BackwardMaps {
  CUtensorMap q, k, v, dout;
};

// What every backward kernel has in shared memory for the thread that loads. Blocks of q and do are counted through all
// tasks of a CTA, and so are tasks: both have two places.
struct LoadBarriers {
  std::uint64_t kv_full, kv_empty, q_full[2], q_empty[2], do_full[2], do_empty[2];
  KeyTile tile[2];
};

KEEL_DEVICE void init_barriers(LoadBarriers& x) {
  using namespace ptx;
  init_barrier(shared_address(&x.kv_full), 1);
  init_barrier(shared_address(&x.kv_empty), 4);  // both warpgroups, and the two warps that order dq
  for (int i = 0; i < 2; ++i) {
    init_barrier(shared_address(&x.q_full[i]), 1);
    init_barrier(shared_address(&x.do_full[i]), 1);
    init_barrier(shared_address(&x.q_empty[i]), 2);
    init_barrier(shared_address(&x.do_empty[i]), 2);
  }
  publish_barriers();
}

// The loading thread. Tasks are taken in the order of their numbers, one at a time, so that a task waits only for those
// that are running or done.
template <class S, class Shared>
KEEL_DEVICE void load_tasks(Shared& shared, const BackwardMaps& maps, const BackwardArguments& a) {
  using namespace ptx;
  constexpr int kPanelQ = S::rows * 128, kPanelK = S::keys * 128;
  const int group = static_cast<int>(a.call.forward.group);
  LoadBarriers& x = shared.loads;
  int step = 0;
  for (int round = 0;; ++round) {
    const int task = atomicAdd(a.next, 1);
    wait(shared_address(&x.kv_empty), (round & 1) ^ 1);
    KeyTile& tile = x.tile[round & 1];
    if (task >= a.cut.tasks) {
      tile.entry = -1;
      arrive(shared_address(&x.kv_full));
      return;
    }
    tile = a.tiles[task];
    if (tile.block_begin == tile.block_end) {
      arrive(shared_address(&x.kv_full));
      continue;
    }
    arrive_expecting(shared_address(&x.kv_full), 2 * kPanelK * S::panels);
#pragma unroll
    for (int p = 0; p < S::panels; ++p) {
      const ptx::Place at = {p * 64, 0, tile.k_begin + tile.first_key, tile.head, tile.batch};
      load_tile(shared_address(shared.k) + p * kPanelK, maps.k, shared_address(&x.kv_full), at);
      load_tile(shared_address(shared.v) + p * kPanelK, maps.v, shared_address(&x.kv_full), at);
    }
    for (int g = 0; g < group; ++g) {
      const int head = tile.head * group + g;
      const std::int64_t slots =
          (std::int64_t{tile.batch} * a.call.forward.q_heads + head) * a.cut.query_slots + tile.slot;
      for (int m = tile.block_end - 1; m >= tile.block_begin; --m, ++step) {
        const int stage = step & 1, phase = ((step >> 1) & 1) ^ 1;
        const auto load = [&](const CUtensorMap& map, const void* to, const float* row_values, const float* values_to,
                              std::uint64_t& full, std::uint64_t& empty) {
          const int arrays = S::terms && &map == &maps.q ? 2 : 1;
          wait(shared_address(&empty), phase);
          arrive_expecting(shared_address(&full), kPanelQ * S::panels + arrays * S::rows * 4);
#pragma unroll
          for (int p = 0; p < S::panels; ++p) {
            load_tile(shared_address(to) + p * kPanelQ, map, shared_address(&full),
                      {p * 64, 0, tile.q_begin + m * S::rows, head, tile.batch});
          }
          load_bytes(shared_address(values_to), row_values + (slots + m) * S::rows, S::rows * 4, shared_address(&full));
        };
        load(maps.q, shared.q[stage], a.lse_log2, shared.lse_log2[stage], x.q_full[stage], x.q_empty[stage]);
        if constexpr (S::terms) {
          load_bytes(shared_address(shared.scale[stage]), a.scale + (slots + m) * S::rows, S::rows * 4,
                     shared_address(&x.q_full[stage]));
        }
        load(maps.dout, shared.dout[stage], a.delta, shared.delta[stage], x.do_full[stage], x.do_empty[stage]);
      }
    }
  }
}

// The task of a round, for those who do not load; entry −1 at the end.
KEEL_DEVICE const KeyTile& task_of(LoadBarriers& loads, int round) {
  ptx::wait(ptx::shared_address(&loads.kv_full), round & 1);
  return loads.tile[round & 1];
}

// What the threads of a backward kernel do: one loads, two warps hand dq on, and two warpgroups compute.
template <class S, class Shared, class HandOn, class Compute>
KEEL_DEVICE void share_roles(Shared& shared, const BackwardMaps& maps, const BackwardArguments& a,
                             const HandOn& hand_on_dq, const Compute& compute) {
  using namespace ptx;
  const int group = __shfl_sync(~0u, threadIdx.x / 128, 0);
  if (threadIdx.x == 0) init_barriers(shared.loads);
  let_next_kernel_start();
  wait_for_last_kernel();
  __syncthreads();
  if (group == 0) {
    give_registers<24>();
    if (threadIdx.x == 0) load_tasks<S>(shared, maps, a);
    const int warp = threadIdx.x / 32;
    if (warp == 1 || warp == 2) hand_on_dq();
  } else {
    take_registers<240>();
    compute(group - 1);
  }
}

}  // namespace keel::cuda::hopper
