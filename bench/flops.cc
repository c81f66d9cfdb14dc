#include "bench/flops.h"

#include <algorithm>
#include <cmath>

#include "core/block_tiles.h"
#include "core/element.h"

namespace keel::bench {

namespace {

// Of the keys that position leaves to row i of an entry, how many a block mask shows.
std::int64_t listed_keys(const BlockTiles& tiles, const Entry& entry, std::int64_t h, std::int64_t i, KeyRange keys) {
  const std::int64_t row = entry.q_begin + i, begin = entry.k_begin + keys.begin, end = entry.k_begin + keys.end;
  const BlockTiles::List list = tiles.list(entry.batch, h, row);
  std::int64_t count = 0;
  for (std::int64_t at = list.begin; at < list.end; ++at) {
    const std::int64_t first = tiles.block(at) * tiles.keys;
    const std::uint8_t* const bits = tiles.bits(at, row);
    for (std::int64_t j = std::max(first, begin); j < std::min(first + tiles.keys, end); ++j) {
      count += bits == nullptr || bits[(j - first) * tiles.key] != 0 ? 1 : 0;
    }
  }
  return count;
}

}  // namespace

std::int64_t visible_scores(const Problem& p) {
  const TensorView &mask = p.options.mask, &bias = p.options.bias;
  const BlockTiles tiles = p.options.block_mask != nullptr ? BlockTiles(*p.options.block_mask) : BlockTiles();
  std::int64_t total = 0;
  for (std::int64_t e = 0; e < p.entries(); ++e) {
    const Entry entry = p.entry(e);
    for (std::int64_t i = 0; i < entry.q_rows; ++i) {
      const KeyRange keys = p.sequences.key_range(entry, i);
      if (!mask.given() && !bias.given() && !tiles) {
        total += std::max<std::int64_t>(keys.end - keys.begin, 0) * p.q_heads;
        continue;
      }
      for (std::int64_t h = 0; h < p.q_heads; ++h) {
        if (tiles && !mask.given() && !bias.given()) {
          total += listed_keys(tiles, entry, h, i, keys);
          continue;
        }
        for (std::int64_t j = keys.begin; j < keys.end; ++j) {
          const std::int64_t row = entry.q_begin + i, column = entry.k_begin + j;
          const bool hidden = (mask.given() && load_at(mask, entry.batch, h, row, column) == 0.0) ||
                              (tiles && !tiles.sees(entry.batch, h, row, column)) ||
                              (bias.given() && load_at(bias, entry.batch, h, row, column) == -INFINITY);
          total += hidden ? 0 : 1;
        }
      }
    }
  }
  return total;
}

double forward_flops(const Problem& p) {
  return 2.0 * static_cast<double>(p.d_k + p.d_v) * static_cast<double>(visible_scores(p));
}

double key_value_bytes(const Problem& p) {
  return static_cast<double>(p.batch * p.kv_heads * p.n_k * (p.d_k + p.d_v) * size_of(p.dtype));
}

}  // namespace keel::bench
