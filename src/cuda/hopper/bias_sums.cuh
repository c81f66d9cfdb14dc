#pragma once

#include "cuda/hopper/gradient_rows.cuh"

// dbias where an element is a sum over heads, batch entries or rows, or is added to what is there. Sums are made in f32
// in the workspace, in one order, by the warpgroup that has ds; bias_passes.cuh takes them to dbias.
//
// BiasSums::tiles: a place for each pair. Blocks of 64 rows and 64 keys lie as accumulators; the heads that share one
// add to it one after the other, in the order of their tasks, so that one waits only for those before it.
// BiasSums::keys: one element for all rows. A task sums the rows of each of its keys; the pass sums over heads.
namespace keel::cuda::hopper {

constexpr int kBiasTile = 64 * 64;

// How many places dbias has along batch entries and heads: 1 where it is broadcast.
struct BiasSlices {
  int entries, heads;
};
KEEL_DEVICE BiasSlices bias_slices(const BackwardArguments& a) {
  const Call& f = a.call.forward;
  return {a.call.dbias.batch == 0 ? 1 : static_cast<int>(f.sequences.batch),
          a.call.dbias.head == 0 ? 1 : static_cast<int>(f.q_heads)};
}

// A block of pairs of a task, and whose turn it is there.
struct BiasTurn {
  std::int64_t tile;
  int before;  // what adds before it; −1: nothing does
  int own;     // number of the entry and head among those that share the tile
};
KEEL_DEVICE BiasTurn bias_turn_of(const BackwardArguments& a, const KeyTile& tile, int head, int m) {
  const BiasSlices slices = bias_slices(a);
  const int sharing = slices.heads == 1 ? static_cast<int>(a.call.forward.q_heads) : 1;
  const int h = slices.heads == 1 ? head : 0, b = slices.entries == 1 ? tile.batch : 0;
  const std::int64_t slice =
      std::int64_t{slices.entries == 1 ? 0 : tile.batch} * slices.heads + (slices.heads == 1 ? 0 : head);
  const std::int64_t blocks = std::int64_t{a.cut.key_slots} * a.cut.query_slots;
  const std::int64_t block = std::int64_t{tile.block} * a.cut.query_slots + m;
  const int own = b * sharing + h;
  // Every head of an entry comes to the tile; another entry may be too short for it.
  const int before = h > 0 || a.bias_before == nullptr ? own - 1 : a.bias_before[tile.batch * blocks + block];
  return {slice * blocks + block, before, own};
}

// Adds ds of a warpgroup's block to its tile. `meet` is a barrier of the warpgroup.
template <class Meet>
KEEL_DEVICE void add_bias_tile(const BackwardArguments& a, const BiasTurn& turn, int thread, const float (&ds)[32],
                               const Meet& meet) {
  if (turn.before >= 0) {
    if (thread == 0) {
      while (ptx::load_flag(a.bias_turns + turn.tile) != turn.before + 1) {
      }
    }
    meet();
  }
  float* const to = a.bias_sums + turn.tile * kBiasTile + thread * 4;
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const float4 four = make_float4(ds[4 * i], ds[4 * i + 1], ds[4 * i + 2], ds[4 * i + 3]);
    if (turn.before < 0) {
      *reinterpret_cast<float4*>(to + i * 512) = four;
    } else {
      ptx::add_4(to + i * 512, four);
    }
  }
  meet();
  if (thread == 0) ptx::store_flag(a.bias_turns + turn.tile, turn.own + 1);
}

// Adds ds of a thread's two keys, over the rows of a block, to the sums of the task's keys in shared memory.
KEEL_DEVICE void add_bias_keys(float* sums, int key, const float (&ds)[32]) {
  float own[2] = {0, 0};
#pragma unroll
  for (int i = 0; i < 32; ++i) own[i >> 1 & 1] += ds[i];
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const float sum = sum_of_quad(own[r]);
    if ((threadIdx.x & 3) == 0) sums[key + 8 * r] += sum;
  }
}

// Writes the sums of a head, and begins anew: by the threads that add to them.
KEEL_DEVICE void put_bias_keys(const BackwardArguments& a, const KeyTile& tile, int head, float* sums, int key) {
  if ((threadIdx.x & 3) != 0) return;
  const std::int64_t keys = std::int64_t{a.cut.key_slots} * 64;
  float* const to = a.bias_sums + (tile.batch * a.call.forward.q_heads + head) * keys + tile.first_key;
  for (int k = key; k < key + 16; k += 8) to[k] = sums[k], sums[k] = 0.0f;
}

}  // namespace keel::cuda::hopper
