#pragma once

#include <cstdint>
#include <type_traits>

#include "keel/attention.h"

namespace keel {

// A BlockMask as kernels read it. Rows and keys are those of the tensors.
struct BlockTiles {
  const std::int64_t* offsets = nullptr;
  const std::int64_t* blocks = nullptr;
  const std::uint8_t* tiles = nullptr;
  std::int64_t batch = 0, head = 0, step = 0;  // strides of offsets
  std::int64_t item = 0, field = 0;            // of blocks
  std::int64_t tile = 0, row = 0, key = 0;     // of tiles
  std::int64_t rows = 0, keys = 0;             // of a tile

  constexpr BlockTiles() = default;
  explicit BlockTiles(const BlockMask& mask)
      : offsets(static_cast<const std::int64_t*>(mask.offsets.data)),
        blocks(static_cast<const std::int64_t*>(mask.blocks.data)),
        tiles(static_cast<const std::uint8_t*>(mask.tiles.data)),
        batch(stride(mask.offsets, 0)),
        head(stride(mask.offsets, 1)),
        step(stride(mask.offsets, 2)),
        item(stride(mask.blocks, 0)),
        field(stride(mask.blocks, 1)),
        tile(stride(mask.tiles, 0)),
        row(stride(mask.tiles, 1)),
        key(stride(mask.tiles, 2)),
        rows(mask.tiles.shape[1]),
        keys(mask.tiles.shape[2]) {}

  constexpr explicit operator bool() const { return rows > 0; }

  // Items [begin, end) of `blocks`.
  struct List {
    std::int64_t begin = 0, end = 0;
    constexpr bool operator==(const List&) const = default;
  };
  // Those of the block of queries that holds row i.
  constexpr List list(std::int64_t b, std::int64_t h, std::int64_t i) const {
    const std::int64_t* const at = offsets + b * batch + h * head + i / rows * step;
    return {at[0], at[step]};
  }
  constexpr std::int64_t block(std::int64_t at) const { return blocks[at * item]; }
  // The row of the tile for query i; null if the tile is full.
  constexpr const std::uint8_t* bits(std::int64_t at, std::int64_t i) const {
    const std::int64_t which = blocks[at * item + field];
    return which < 0 ? nullptr : tiles + which * tile + i % rows * row;
  }
  // The first item of a list whose block is at least `from`.
  constexpr std::int64_t find(List list, std::int64_t from) const {
    while (list.begin < list.end) {
      const std::int64_t middle = list.begin + (list.end - list.begin) / 2;
      (block(middle) < from ? list.begin : list.end) = block(middle) < from ? middle + 1 : middle;
    }
    return list.begin;
  }

  constexpr bool sees(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) const {
    const List all = list(b, h, i);
    const std::int64_t at = find(all, j / keys);
    if (at == all.end || block(at) != j / keys) return false;
    const std::uint8_t* const own = bits(at, i);
    return own == nullptr || own[j % keys * key] != 0;
  }

 private:
  // Strides along a dimension of one element may be anything.
  template <std::size_t Rank, class Pointer>
  static std::int64_t stride(const BasicView<Rank, Pointer>& view, std::size_t i) {
    return view.shape[i] > 1 ? view.strides[i] : 0;
  }
};

static_assert(std::is_trivially_copyable_v<BlockTiles>);

}  // namespace keel
