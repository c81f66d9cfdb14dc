#pragma once

#include <algorithm>
#include <cstdint>

#include "core/call.h"
#include "cuda/hopper/tiles.h"

// How a backward call is cut: a task is a block of keys of a key-value head, which walks over the blocks of query rows
// that see it. Plain functions of numbers, for the kernels and for the tests that need no GPU.
namespace keel::cuda::hopper {

// Blocks of query rows have slots in the workspace: one after the other per head, those of each packed entry beginning
// anew. Blocks of keys of a packed batch are numbered in the same way.
struct BackwardCut {
  int query_block = 0, key_block = 0;  // rows, keys
  int kv_heads = 0, entries = 0;
  int query_slots = 0;  // per batch entry and query head
  int key_slots = 0;    // per batch entry and key-value head
  int section = 1;      // entries × key-value heads that are walked side by side
  int tasks = 0;
};

// How a backward kernel makes dbias: each pair has a place and is written there; or ds is summed first, over the
// entries and heads that share a pair's place, or over all rows that share a key's.
enum class BiasSums : std::uint8_t { none, pairs, tiles, keys };

// Which block of which entry, and which head.
struct BlockIndex {
  int entry, head, block;
};

// Where an entry's first block of rows, or of keys, has its slot. No two entries share one: entry e of n rows from row
// b on takes ⌈n/size⌉ slots from ⌊b/size⌋ + e on, and the next entry begins no earlier than ⌊(b + n)/size⌋ + e + 1.
constexpr int first_slot(const Sequences& s, int entry, std::int64_t begin, int size) {
  return s.packed() ? static_cast<int>(begin / size) + entry : 0;
}

// The slots that all entries of `rows` rows together need.
constexpr std::int64_t slots_for(const Sequences& s, std::int64_t rows, int size) {
  return s.packed() ? rows / size + s.entries() : (rows + size - 1) / size;
}

// The entry of a packed batch and its block that have a slot; the block may lie past the entry's end.
template <class Begin>
constexpr BlockIndex block_in_slot(const Sequences& s, int slot, int size, const Begin& begin) {
  int low = 0, high = static_cast<int>(s.entries());
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    (first_slot(s, middle, begin(s.entry(middle)), size) <= slot ? low : high) = middle;
  }
  return {low, 0, slot - first_slot(s, low, begin(s.entry(low)), size)};
}
constexpr BlockIndex query_block_in_slot(const Sequences& s, int slot, int size) {
  return block_in_slot(s, slot, size, [](const Entry& entry) { return entry.q_begin; });
}

// Task t of the cut. A block of rows adds up dq over blocks of keys in ascending order, so it waits for tasks of lower
// numbers only. Under a causal mask the first blocks of keys have the most rows.
constexpr BlockIndex key_task(const Sequences& s, const BackwardCut& cut, int t) {
  if (s.packed()) {
    BlockIndex index =
        block_in_slot(s, t / cut.kv_heads, cut.key_block, [](const Entry& entry) { return entry.k_begin; });
    index.head = t % cut.kv_heads;
    return index;
  }
  const int per_section = cut.key_slots * cut.section, section = t / per_section, within = t % per_section;
  const int width = std::min(cut.section, cut.kv_heads * cut.entries - section * cut.section);
  const int at = section * cut.section + within % width;
  return {at / cut.kv_heads, at % cut.kv_heads, within / width};
}

// A block of keys, and the blocks of rows that it walks from the last to the first. Blocks of rows outside
// [full_begin, full_end) hide some pair.
struct alignas(16) KeyTile {
  int entry;  // −1: no task is left
  int batch, head, block;
  int first_key, keys;  // of the entry; rows of k, padding included
  int q_begin, q_len, k_begin, k_len;
  int q_position, k_position, diagonal;
  int slot;  // of the entry's first block of rows
  int block_begin, block_end, full_begin, full_end;
};

// The rows that may see key j of the entry by position.
constexpr Keys rows_of(const KeyTile& tile, const Window& window, int j) {
  if (j >= tile.k_len) return {0, 0};
  const int at = j - tile.diagonal, begin = std::max(at - window.right, 0);
  return {begin, std::max(std::min(at + window.left + 1, tile.q_len), begin)};
}

// The first block of keys that block m of the rows adds to its dq.
constexpr int first_key_block(const KeyTile& tile, const Window& window, int query_block, int key_block, int m) {
  return std::max(m * query_block + tile.diagonal - window.left, 0) / key_block;
}
constexpr int first_key_block(const KeyTile& tile, const Window& window, const BackwardCut& cut, int m) {
  return first_key_block(tile, window, cut.query_block, cut.key_block, m);
}

constexpr KeyTile make_key_tile(const Sequences& s, const BackwardCut& cut, const BlockIndex& index) {
  const Entry entry = s.entry(index.entry);
  KeyTile tile{};
  tile.entry = index.entry;
  tile.head = index.head;
  tile.block = index.block;
  place(tile, entry);
  tile.slot = first_slot(s, index.entry, entry.q_begin, cut.query_block);
  tile.first_key = index.block * cut.key_block;
  const int rows = s.packed() ? tile.k_len : narrow(s.n_k);
  tile.keys = std::clamp(rows - tile.first_key, 0, cut.key_block);
  if (tile.first_key >= tile.k_len) return tile;

  const Window window = window_of(s);
  const int first = tile.first_key, last = first + cut.key_block - 1, size = cut.query_block;
  const int begin = std::max(first - tile.diagonal - window.right, 0);
  const int end = std::min(last - tile.diagonal + window.left + 1, tile.q_len);
  if (begin >= end) return tile;
  tile.block_begin = begin / size;
  tile.block_end = (end + size - 1) / size;
  if (last >= tile.k_len) return tile;
  tile.full_begin = (std::max(last - tile.diagonal - window.right, 0) + size - 1) / size;
  tile.full_end = std::max(std::min(first - tile.diagonal + window.left + 1, tile.q_len), 0) / size;
  return tile;
}

}  // namespace keel::cuda::hopper
