#pragma once

#include "cuda/hopper/forward.h"
#include "cuda/hopper/ptx.cuh"

// What the kernel's warpgroups share, and the thread that loads it.
namespace keel::cuda::hopper {

// A Shape as a type.
template <int kD, int kKeys, int kGroups, bool kStores>
struct ShapeOf {
  static constexpr Shape shape = {kD, kKeys, kGroups, kStores};
  static constexpr int d = kD, keys = kKeys, groups = kGroups, rows = shape.rows(), threads = shape.threads();
  static constexpr int panels = shape.panels();
  static constexpr bool stores = kStores;
  // Of a warp's threads. Together no more than the kernel starts with, 128, 168 or 255 for every thread: who asks for
  // more waits for ever.
  static constexpr int loader_registers = kGroups == 3 ? 32 : 40;
  static constexpr int group_registers = kGroups == 3 ? 160 : kGroups == 2 ? 232 : 248;
};

template <class Element, class S>
struct Shared {
  static constexpr int kRow = 64 * S::panels;
  alignas(1024) Element q[S::rows * kRow];
  alignas(1024) Element k[2][S::keys * kRow];
  alignas(1024) Element v[2][S::keys * kRow];
  alignas(1024) Element out[S::stores ? S::rows * kRow : 8];
  Tile tile[2];
  std::uint64_t q_full, q_empty, k_full[2], k_empty[2], v_full[2], v_empty[2];
};

// The tiles that a CTA takes.
class Tiles {
 public:
  KEEL_DEVICE explicit Tiles(const ForwardArguments& a)
      : a_(a), count_(a.listed != nullptr ? static_cast<int>(*a.listed_count) * a.cut.heads : a.cut.tiles) {}

  KEEL_DEVICE Tile at(int t) const {
    if (t >= count_) {
      Tile none{};
      none.index = -1;
      return none;
    }
    if (a_.listed == nullptr) return make_tile(a_.call, a_.cut, tile_index(a_.cut, t), t);
    TileIndex index = a_.listed[t / a_.cut.heads];
    index.head = t % a_.cut.heads;
    return make_tile(a_.call, a_.cut, index, t);
  }
  KEEL_DEVICE int after_first() const { return a_.next == nullptr ? count_ : gridDim.x + atomicAdd(a_.next, 1u); }

 private:
  const ForwardArguments& a_;
  int count_;
};

struct Maps {
  CUtensorMap q, k, v, out;
};

// The loading thread.
template <class S, class Element>
KEEL_DEVICE void load_tiles(Shared<Element, S>& shared, const Maps& maps, const ForwardArguments& a) {
  using namespace ptx;
  constexpr int kPanelQ = S::rows * 128, kPanelK = S::keys * 128;
  const int group = static_cast<int>(a.call.group);
  const int q_bytes = a.cut.tile_rows * 128 * S::panels;
  const Tiles tiles(a);
  int step = 0, round = 0;
  // One block of k or of v, all its panels.
  const auto load = [&](const CUtensorMap& map, Element* to, std::uint64_t& full, std::uint64_t& empty, int phase,
                        const Place& at) {
    wait(shared_address(&empty), phase);
    arrive_expecting(shared_address(&full), kPanelK * S::panels);
#pragma unroll
    for (int p = 0; p < S::panels; ++p) {
      load_tile(shared_address(to) + p * kPanelK, map, shared_address(&full), {p * 64, 0, at.row, at.head, at.batch});
    }
  };
  for (int t = blockIdx.x;; ++round) {
    const Tile tile = tiles.at(t);
    const int kv_head = a.cut.share == 1 ? tile.head / group : tile.head;
    const auto load_k = [&](int n, int at_step) {
      const int stage = at_step & 1;
      load(maps.k, shared.k[stage], shared.k_full[stage], shared.k_empty[stage], ((at_step >> 1) & 1) ^ 1,
           {0, 0, tile.k_begin + n * S::keys - tile.shift, kv_head, tile.batch});
    };
    int n = tile.block_end - 1;
    if (n >= tile.block_begin) load_k(n, step);  // before q, whose memory the last tile needs for longer
    wait(shared_address(&shared.q_empty), (round & 1) ^ 1);
    shared.tile[round & 1] = tile;
    if (tile.index < 0) {
      arrive(shared_address(&shared.q_full));
      let_next_kernel_start();
      return;
    }
    arrive_expecting(shared_address(&shared.q_full), q_bytes);
#pragma unroll
    for (int p = 0; p < S::panels; ++p) {
      load_tile(shared_address(shared.q) + p * kPanelQ, maps.q, shared_address(&shared.q_full),
                {p * 64, 0, tile.q_begin + tile.first_row / a.cut.share, tile.head, tile.batch});
    }
    for (; n >= tile.block_begin; --n, ++step) {
      const int stage = step & 1;
      load(maps.v, shared.v[stage], shared.v_full[stage], shared.v_empty[stage], ((step >> 1) & 1) ^ 1,
           {0, 0, tile.k_begin + n * S::keys - tile.shift, kv_head, tile.batch});
      if (n > tile.block_begin) load_k(n - 1, step + 1);
    }
    t = tiles.after_first();
  }
}

}  // namespace keel::cuda::hopper
