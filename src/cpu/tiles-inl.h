// What a block mask leaves to rows: a range of keys per row and block, and the keys that are hidden within it.
//
// Cost: a row of a tile that is stored takes one comparison per vector of bytes. Where the visible keys of a row lie
// side by side, as in documents and prefixes, nothing else is done: the range is all the kernels need.
#if defined(KEEL_CPU_TILES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KEEL_CPU_TILES_INL_H_
#undef KEEL_CPU_TILES_INL_H_
#else
#define KEEL_CPU_TILES_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>

#include "cpu/forward.h"
#include "cpu/pack-inl.h"

HWY_BEFORE_NAMESPACE();
namespace keel::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

HWY_INLINE Range Clip(Range range, Range to) { return {std::max(range.begin, to.begin), std::min(range.end, to.end)}; }

// From the first to the last key of the tiles that are listed for query i of head g.
HWY_INLINE Range ListedKeys(const ForwardHead& head, std::int64_t g, std::int64_t i) {
  const BlockTiles& tiles = head.tiles;
  const BlockTiles::List list = tiles.list(0, g, head.tiles_row + i);
  if (list.begin == list.end) return {0, 0};
  return {tiles.block(list.begin) * tiles.keys - head.tiles_key,
          (tiles.block(list.end - 1) + 1) * tiles.keys - head.tiles_key};
}

// The part of a list with keys of `block`.
HWY_INLINE BlockTiles::List PartOf(const ForwardHead& head, std::int64_t g, std::int64_t i, Range block) {
  const BlockTiles& tiles = head.tiles;
  const BlockTiles::List list = tiles.list(0, g, head.tiles_row + i);
  const std::int64_t begin = tiles.find(list, (head.tiles_key + block.begin) / tiles.keys);
  return {begin, tiles.find({begin, list.end}, (head.tiles_key + block.end - 1) / tiles.keys + 1)};
}

// The keys of a tile, as the head counts them.
HWY_INLINE Range KeysOfTile(const ForwardHead& head, std::int64_t at) {
  const std::int64_t first = head.tiles.block(at) * head.tiles.keys - head.tiles_key;
  return {first, first + head.tiles.keys};
}

// Some keys of which `visible` are visible, all of them within `range`.
struct SomeKeys {
  Range range = {INT64_MAX, 0};
  std::int64_t visible = 0;

  void Join(Range keys, std::int64_t count) {
    range = {std::min(range.begin, keys.begin), std::max(range.end, keys.end)};
    visible += count;
  }
};

// Joins the bytes of `keys` that are not 0.
HWY_INLINE void JoinBytes(const std::uint8_t* bytes, std::int64_t stride, Range keys, SomeKeys& some) {
  if (stride != 1) {
    for (std::int64_t j = keys.begin; j < keys.end; ++j) {
      if (bytes[(j - keys.begin) * stride] != 0) some.Join({j, j + 1}, 1);
    }
    return;
  }
  const hn::CappedTag<std::uint8_t, 64> d;
  const auto n = static_cast<std::int64_t>(hn::Lanes(d));
  std::uint8_t last[64] = {};
  for (std::int64_t j = keys.begin; j < keys.end; j += n) {
    const std::uint8_t* from = bytes + (j - keys.begin);
    if (j + n > keys.end)
      from = static_cast<std::uint8_t*>(std::memcpy(last, from, static_cast<std::size_t>(keys.end - j)));
    std::uint64_t bits = 0;
    std::uint8_t stored[8] = {};
    hn::StoreMaskBits(d, hn::Ne(hn::LoadU(d, from), hn::Zero(d)), stored);
    std::memcpy(&bits, stored, sizeof(bits));
    const Range found = {j + std::countr_zero(bits), j + 64 - std::countl_zero(bits)};
    some.Join(bits != 0 ? found : Range{INT64_MAX, 0}, std::popcount(bits));  // no branch: it could not be predicted
  }
}

// Calls visit(x, place, part) for each of the rows with what is listed for it of `block`.
template <class Visit>
HWY_INLINE void ForListed(const ForwardHead& head, RowPlace place, std::int64_t rows, Range block, const Visit& visit) {
  const BlockTiles& tiles = head.tiles;
  BlockTiles::List part;
  std::int64_t begin = 0, end = 0, g = 0;  // rows of the block of queries, and the head, that `part` belongs to
  for (std::int64_t x = 0; x < rows; ++x, ++place) {
    const std::int64_t row = head.tiles_row + place.i;
    if (row < begin || row >= end || (tiles.head != 0 && place.g != g)) {
      part = PartOf(head, place.g, place.i, block);
      begin = row / tiles.rows * tiles.rows;
      end = begin + tiles.rows;
      g = place.g;
    }
    visit(x, place, part);
  }
}

// From the first to the last of `rows`, of `group` heads, for which any key of `block` lies between the tiles listed.
HWY_INLINE Range RowsThatList(const ForwardHead& head, Range rows, std::int64_t group, Range block) {
  const std::int64_t heads = head.tiles.head != 0 ? group : 1;
  const auto lists = [&](std::int64_t r) {
    for (std::int64_t g = 0; g < heads; ++g) {
      if (!Clip(ListedKeys(head, g, r / group), block).empty()) return true;
    }
    return false;
  };
  const std::int64_t step = head.tiles.rows, first = head.tiles_row;  // rows of a block of queries have one list
  while (!rows.empty() && !lists(rows.begin)) {
    rows.begin = (((first + rows.begin / group) / step + 1) * step - first) * group;
  }
  while (!rows.empty() && !lists(rows.end - 1)) {
    rows.end = ((first + (rows.end - 1) / group) / step * step - first) * group;
  }
  return rows;
}

// Prefetches what FindSeen() will read for these rows. Their bytes are a tile's row apart and come from memory: read
// when they are needed, each would be waited for.
HWY_INLINE void PrefetchTiles(const ForwardHead& head, RowPlace place, std::int64_t rows, Range block) {
  if (head.tiles.key != 1) return;
  ForListed(head, place, rows, block, [&](std::int64_t, const RowPlace& at_row, BlockTiles::List part) {
    for (std::int64_t at = part.begin; at < part.end; ++at) {
      const std::uint8_t* const bits = head.tiles.bits(at, head.tiles_row + at_row.i);
      if (bits == nullptr) continue;
      const Range tile = KeysOfTile(head, at), here = Clip(tile, block);
      for (std::int64_t j = here.begin; j < here.end; j += 64) PrefetchToL1(bits + (j - tile.begin));
    }
  });
}

// What rows see of a block of keys: `seen` from `keys`, what they see of all keys by position. `holes` tells which rows
// do not see all of that.
HWY_INLINE void FindSeen(const ForwardHead& head, const RowPlace& place, std::int64_t rows, Range block,
                         const Range* keys, Range* seen, std::uint8_t* holes) {
  const BlockTiles& tiles = head.tiles;
  ForListed(head, place, rows, block, [&](std::int64_t x, const RowPlace& at_row, BlockTiles::List part) {
    const Range own = Clip(keys[x], block);
    SomeKeys some;
    for (std::int64_t at = part.begin; at < part.end; ++at) {
      const Range tile = KeysOfTile(head, at), here = Clip(tile, own);
      if (here.empty()) continue;
      const std::uint8_t* const bits = tiles.bits(at, head.tiles_row + at_row.i);
      if (bits == nullptr) {
        some.Join(here, here.end - here.begin);
      } else {
        JoinBytes(bits + (here.begin - tile.begin) * tiles.key, tiles.key, here, some);
      }
    }
    const bool none = some.visible == 0;
    seen[x] = none ? Range{0, 0} : some.range;
    holes[x] = !none && some.visible < some.range.end - some.range.begin;
  });
}

// A byte per key of `keys`, counted from key `first` on: 1 if query i of head g sees it.
HWY_INLINE void FillVisible(const ForwardHead& head, std::int64_t g, std::int64_t i, std::int64_t first, Range keys,
                            std::uint8_t* bytes) {
  std::fill(bytes + keys.begin, bytes + keys.end, std::uint8_t{0});
  const Range block = {first + keys.begin, first + keys.end};
  const BlockTiles::List part = PartOf(head, g, i, block);
  for (std::int64_t at = part.begin; at < part.end; ++at) {
    const Range tile = KeysOfTile(head, at), here = Clip(tile, block);
    const std::uint8_t* const bits = head.tiles.bits(at, head.tiles_row + i);
    for (std::int64_t j = here.begin; j < here.end; ++j) {
      bytes[j - first] = bits == nullptr || bits[(j - tile.begin) * head.tiles.key] != 0 ? 1 : 0;
    }
  }
}

}  // namespace keel::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
