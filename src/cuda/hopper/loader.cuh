#pragma once

#include "cuda/hopper/forward.h"
#include "cuda/hopper/ptx.cuh"

// What the kernel's warpgroups share, and the thread that loads it.
namespace keel::cuda::hopper {

// A Shape as a type, and the bytes of an element of a bias or mask, whose tiles are loaded too; 0: none are.
template <int kD, int kKeys, int kGroups, bool kRoomy, int kTermBytes = 0>
struct ShapeOf {
  static constexpr Shape shape = {kD, kKeys, kGroups, kRoomy};
  static constexpr int d = kD, keys = kKeys, groups = kGroups, rows = shape.rows(), threads = shape.threads();
  static constexpr int panels = shape.panels(), queries = kRoomy ? 2 : 1, term_bytes = kTermBytes;
  static constexpr bool roomy = kRoomy;
  // Of a warp's threads. Together no more than the kernel starts with, 128, 168 or 255 for every thread: who asks for
  // more waits for ever.
  static constexpr int loader_registers = kGroups == 3 ? 32 : 40;
  static constexpr int group_registers = kGroups == 3 ? 160 : kGroups == 2 ? 232 : 248;
};

template <class Element, class S>
struct Shared {
  static constexpr int kRow = 64 * S::panels;
  static constexpr int kTermAlignment = S::term_bytes > 0 ? 1024 : 16;
  alignas(1024) Element q[S::queries][S::rows * kRow];
  alignas(1024) Element k[2][S::keys * kRow];
  alignas(1024) Element v[2][S::keys * kRow];
  alignas(1024) Element out[S::roomy ? S::rows * kRow : 8];
  alignas(kTermAlignment) unsigned char term[S::groups][S::term_bytes > 0 ? 64 * S::keys* S::term_bytes : 16];
  Tile tile[2];
  std::uint64_t tile_full[2], tile_empty[2], q_full[S::queries], q_empty[S::queries];
  std::uint64_t k_full[2], k_empty[2], v_full[2], v_empty[2];
  std::uint64_t term_full[S::groups], term_empty[S::groups];
  long long odd;  // the last row that was noted, of those that are computed again; −1: none
};

// The tiles that a CTA takes. kFew: its kernel serves few rows too, whose tiles may hold several heads, or chunks of
// keys.
template <class S, bool kFew>
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
    Cut cut = a_.cut;  // with what the compiler knows, so that it need not divide by it
    cut.key_block = S::keys;
    if constexpr (!kFew) {
      cut.share = cut.chunks = 1;
      cut.chunk = 0;
    }
    TileIndex index = a_.listed == nullptr ? tile_index(cut, t) : a_.listed[t / cut.heads];
    if (a_.listed != nullptr) index.head = t % cut.heads;
    return with_groups(with_a_block(make_tile(a_.call, cut, index, t), S::keys), a_.window, cut);
  }
  // Every tile is followed by one question for the next, so the counter is 0 again when all have been taken.
  KEEL_DEVICE int next() const {
    return a_.next == nullptr ? count_ : gridDim.x + atomicInc(a_.next, static_cast<unsigned>(count_ - 1));
  }

 private:
  const ForwardArguments& a_;
  int count_;
};

struct Maps {
  CUtensorMap q, k, v, out;
  CUtensorMap term;  // a bias or mask, 64 rows by 128 bytes
};

// The thread that chooses tiles, one ahead of that which is computed; after a short one it asks for the next right
// away, as the answer would take a good part of the time that there is.
template <bool kFew, class S, class Element>
KEEL_DEVICE void choose_tiles(Shared<Element, S>& shared, const ForwardArguments& a) {
  using namespace ptx;
  constexpr int kShort = 4;  // blocks of keys
  const Tiles<S, kFew> tiles(a);
  const auto await_slot = [&](int round) {
    wait(shared_address(&shared.tile_empty[round & 1]), ((round >> 1) & 1) ^ 1);
  };
  int next = static_cast<int>(blockIdx.x);
  for (int round = 0;; ++round) {
    await_slot(round);
    const Tile tile = tiles.at(next);
    shared.tile[round & 1] = tile;
    arrive(shared_address(&shared.tile_full[round & 1]));
    if (tile.index < 0) return;
    if (tile.block_end - tile.block_begin > kShort) await_slot(round + 1);
    next = tiles.next();
  }
}

// The loading thread.
template <class S, class Element>
KEEL_DEVICE void load_tiles(Shared<Element, S>& shared, const Maps& maps, const ForwardArguments& a) {
  using namespace ptx;
  constexpr int kPanelQ = S::rows * 128, kPanelK = S::keys * 128;
  const int group = static_cast<int>(a.call.group);
  const int q_bytes = a.cut.tile_rows * 128 * S::panels;
  int step = 0;
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
  for (int round = 0;; ++round) {
    wait(shared_address(&shared.tile_full[round & 1]), (round >> 1) & 1);
    const Tile& tile = shared.tile[round & 1];
    const int kv_head = a.cut.share == 1 ? tile.head / group : tile.head;
    const int batch = tile.batch, first_key = tile.k_begin - tile.shift, begin = tile.block_begin;
    const auto load_k = [&](int n, int at_step) {
      const int stage = at_step & 1;
      load(maps.k, shared.k[stage], shared.k_full[stage], shared.k_empty[stage], ((at_step >> 1) & 1) ^ 1,
           {0, 0, first_key + n * S::keys, kv_head, batch});
    };
    int n = tile.block_end - 1;
    if (n >= begin) load_k(n, step);  // before q, whose memory the last tile needs for longer
    const int at = round % S::queries;
    const std::uint32_t full = shared_address(&shared.q_full[at]);
    wait(shared_address(&shared.q_empty[at]), (round / S::queries & 1) ^ 1);
    if (tile.index < 0) {
      arrive(full);
      let_next_kernel_start();
      return;
    }
    arrive_expecting(full, q_bytes);
#pragma unroll
    for (int p = 0; p < S::panels; ++p) {
      load_tile(shared_address(shared.q[at]) + p * kPanelQ, maps.q, full,
                {p * 64, 0, tile.q_begin + (a.cut.share == 1 ? tile.first_row : tile.first_row / a.cut.share),
                 tile.head, batch});
    }
    for (; n >= begin; --n, ++step) {
      const int stage = step & 1;
      load(maps.v, shared.v[stage], shared.v_full[stage], shared.v_empty[stage], ((step >> 1) & 1) ^ 1,
           {0, 0, first_key + n * S::keys, kv_head, batch});
      if (n > begin) load_k(n - 1, step + 1);
    }
  }
}

}  // namespace keel::cuda::hopper
