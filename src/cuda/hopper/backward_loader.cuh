#pragma once

#include "cuda/hopper/backward.h"
#include "cuda/hopper/ptx.cuh"

// The thread that loads what the warpgroups of a backward kernel share.
namespace keel::cuda::hopper {

struct BackwardMaps {
  CUtensorMap q, k, v, dout;
};

// By one thread: takes a task. Tasks are numbered in the order in which CTAs start, so that one waits only for those
// that are running or done.
template <class Shared>
KEEL_DEVICE void begin_task(Shared& shared, const BackwardArguments& a) {
  using namespace ptx;
  init_barrier(shared_address(&shared.kv_full), 1);
  for (int i = 0; i < 2; ++i) {
    init_barrier(shared_address(&shared.q_full[i]), 1);
    init_barrier(shared_address(&shared.do_full[i]), 1);
    init_barrier(shared_address(&shared.q_empty[i]), 2);
    init_barrier(shared_address(&shared.do_empty[i]), 2);
  }
  publish_barriers();
  const Sequences& s = a.call.forward.sequences;
  shared.tile = make_key_tile(s, a.cut, key_task(s, a.cut, atomicAdd(a.next, 1)));
}

// The loading thread.
template <class S, class Shared>
KEEL_DEVICE void load_blocks(Shared& shared, const BackwardMaps& maps, const BackwardArguments& a) {
  using namespace ptx;
  constexpr int kPanelQ = S::rows * 128, kPanelK = S::keys * 128;
  const KeyTile& tile = shared.tile;
  if (tile.block_begin == tile.block_end) return;
  const int group = static_cast<int>(a.call.forward.group), first_row = tile.k_begin + tile.first_key;
  arrive_expecting(shared_address(&shared.kv_full), 2 * kPanelK * S::panels);
#pragma unroll
  for (int p = 0; p < S::panels; ++p) {
    const ptx::Place at = {p * 64, 0, first_row, tile.head, tile.batch};
    load_tile(shared_address(shared.k) + p * kPanelK, maps.k, shared_address(&shared.kv_full), at);
    load_tile(shared_address(shared.v) + p * kPanelK, maps.v, shared_address(&shared.kv_full), at);
  }
  int step = 0;
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
      load(maps.q, shared.q[stage], a.lse_log2, shared.lse_log2[stage], shared.q_full[stage], shared.q_empty[stage]);
      if constexpr (S::terms) {
        load_bytes(shared_address(shared.scale[stage]), a.scale + (slots + m) * S::rows, S::rows * 4,
                   shared_address(&shared.q_full[stage]));
      }
      load(maps.dout, shared.dout[stage], a.delta, shared.delta[stage], shared.do_full[stage], shared.do_empty[stage]);
    }
  }
}

}  // namespace keel::cuda::hopper
