#pragma once

#include <algorithm>
#include <cstdint>

#include "core/call.h"

// How a call is cut into tiles of rows and blocks of keys. Plain functions of numbers, for the kernels and for the
// tests that need no GPU.
namespace keel::cuda::hopper {

// The cut of a call. Rows of a tile are the rows of one head, or, where several query heads share a key-value head and
// each has few rows, those of all of them: row i of the g-th head is then row i·share + g.
struct Cut {
  int share = 1;         // query heads whose rows a tile holds
  int heads = 0;         // query heads ÷ share
  int entries = 0;       // batch entries, or packed ones
  int tile_rows = 0;     // a multiple of share
  int blocks = 0;        // tiles per entry and head; of the longest entry
  int key_block = 0;     // keys per block
  int chunk = 0;         // key blocks per chunk, each chunk a tile of its own; 0: all keys in one
  int chunks = 1;        // of the longest entry
  int section = 1;       // entries × heads that are walked side by side, as their k and v fit the L2 cache
  int tiles = 0;         // blocks × heads × entries × chunks
  bool aligned = false;  // blocks of keys begin at multiples of 64 of the whole: dropout's numbers come in such groups
};

// Which tile: numbers of the entry, of the head (of `heads`), of the block of rows, of the chunk of keys.
struct TileIndex {
  int entry, head, block, chunk;
};

// Tile t of the cut. Later blocks of rows come first within a section: under a causal mask they see more keys.
constexpr TileIndex tile_index(const Cut& cut, int t) {
  const int chunk = t % cut.chunks;
  t /= cut.chunks;
  const int all = cut.heads * cut.entries, per_section = cut.blocks * cut.section;
  const int section = t / per_section, within = t % per_section;
  const int width = std::min(cut.section, all - section * cut.section);
  const int at = section * cut.section + within % width;
  return {at / cut.heads, at % cut.heads, cut.blocks - 1 - within / width, chunk};
}

// Keys [begin, end) of an entry, counted from its first.
struct Keys {
  int begin, end;
};

// A tile: its rows, and the blocks of keys that it walks from the last to the first. Block n holds keys
// [n·key_block − shift, …) of the entry. All blocks outside [full_begin, full_end) hide some key from some row.
struct Tile {
  int index;  // of the cut; past its end: none is left
  int entry, batch, head, chunk;
  int first_row, rows;  // of the entry, shared heads interleaved
  int q_begin, q_len;   // of the entry; rows of the tensor
  int k_begin, k_len;
  int q_position, k_position, diagonal, shift;
  int block_begin, block_end, full_begin, full_end;
  int group_end[3];  // where the blocks end that 64 rows see, those of each warpgroup; block_begin: it has no row
};

constexpr int kFar = 1 << 29;  // twice what the kernels serve: sums of three such numbers fit an int

// A whole number as the kernels hold it. Call positions are below kFar; what a list on a device holds may be anything.
constexpr int narrow(std::int64_t x) {
  return static_cast<int>(std::clamp<std::int64_t>(x, -std::int64_t{kFar}, kFar));
}

// The window around the diagonal, as the kernels hold it.
struct Window {
  int left, right;
};
constexpr Window window_of(const Sequences& s) { return {narrow(s.window_left), narrow(s.window_right)}; }

// The keys that row i of the entry may see by position; i is below q_len.
constexpr Keys keys_of(const Tile& tile, const Window& window, int i) {
  const int at = i + tile.diagonal;
  return {std::max(at - window.left, 0), std::min(at + window.right, tile.k_len - 1) + 1};
}

// Where the tile's entry lies. A tile is a Tile or a KeyTile.
template <class AnyTile>
constexpr void place(AnyTile& tile, const Entry& entry) {
  tile.batch = static_cast<int>(entry.batch);
  tile.q_begin = narrow(entry.q_begin);
  tile.q_len = narrow(entry.q_len);
  tile.k_begin = narrow(entry.k_begin);
  tile.k_len = narrow(entry.k_len);
  tile.q_position = narrow(entry.q_position);
  tile.k_position = narrow(entry.k_position);
  tile.diagonal = narrow(entry.diagonal);
}

constexpr Tile make_tile(const Call& call, const Cut& cut, const TileIndex& index, int number) {
  const Sequences& s = call.sequences;
  const Entry entry = s.entry(index.entry);
  Tile tile{};
  tile.index = number;
  tile.entry = index.entry;
  tile.head = index.head;
  tile.chunk = index.chunk;
  place(tile, entry);
  tile.shift = cut.aligned ? tile.k_position % 64 : 0;
  tile.first_row = index.block * cut.tile_rows;
  tile.rows = std::clamp(narrow(entry.q_rows) * cut.share - tile.first_row, 0, cut.tile_rows);
  const int first = tile.first_row / cut.share;
  const int last = std::min((tile.first_row + tile.rows - 1) / cut.share, tile.q_len - 1);
  if (tile.rows == 0 || first > last) return tile;  // nothing but padding

  const Window window = window_of(s);
  const Keys top = keys_of(tile, window, first), bottom = keys_of(tile, window, last);
  if (top.begin >= bottom.end) return tile;
  const int size = cut.key_block, shift = tile.shift;
  tile.block_begin = (top.begin + shift) / size;
  tile.block_end = (bottom.end + shift + size - 1) / size;
  tile.full_begin = (bottom.begin + shift + size - 1) / size;
  tile.full_end = (std::max(top.end, 0) + shift) / size;
  if (cut.chunk > 0) {
    tile.block_begin = std::max(tile.block_begin, index.chunk * cut.chunk);
    tile.block_end = std::min(tile.block_end, (index.chunk + 1) * cut.chunk);
  }
  tile.block_end = std::max(tile.block_end, tile.block_begin);
  return tile;
}

// The tile, but with a block to walk where it has none: one past the last key, of which no row sees anything.
constexpr Tile with_a_block(Tile tile, int key_block) {
  if (tile.block_end > tile.block_begin) return tile;
  tile.block_begin = (std::max(tile.k_len, 0) + tile.shift + key_block - 1) / key_block;
  tile.block_end = tile.block_begin + 1;
  tile.full_begin = tile.full_end = tile.block_begin;
  return tile;
}

// The tile, of which each warpgroup knows the blocks that its rows see; at least one, if it has rows.
constexpr Tile with_groups(Tile tile, const Window& window, const Cut& cut) {
  for (int g = 0; g < 3; ++g) {
    const int last = std::min(64 * g + 64, tile.rows) - 1;
    const int row = std::min((tile.first_row + last) / cut.share, std::max(tile.q_len - 1, 0));
    const int end = (keys_of(tile, window, row).end + tile.shift + cut.key_block - 1) / cut.key_block;
    const bool exists = 64 * g < tile.rows;
    tile.group_end[g] = exists ? std::clamp(end, tile.block_begin + 1, tile.block_end) : tile.block_begin;
  }
  return tile;
}

}  // namespace keel::cuda::hopper
