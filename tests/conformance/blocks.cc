#include "conformance/blocks.h"

#include <algorithm>
#include <vector>

namespace keel::conformance {

Blocks::Blocks(const Sizes& sizes, const Visible& visible, Placement placement) {
  const auto [batch, heads, n_q, n_k] = sizes.scores;
  const std::int64_t rows = sizes.rows, keys = sizes.keys, blocks_q = (n_q + rows - 1) / rows;
  std::vector<std::int64_t> offsets, blocks;
  std::vector<char> tiles;
  for (std::int64_t b = 0; b < batch; ++b) {
    for (std::int64_t h = 0; h < heads; ++h) {
      offsets.push_back(static_cast<std::int64_t>(blocks.size()) / 2);
      for (std::int64_t x = 0; x < blocks_q; ++x) {
        for (std::int64_t y = 0; y * keys < n_k; ++y) {
          std::vector<char> tile;
          std::int64_t pairs = 0, seen = 0;
          for (std::int64_t i = x * rows; i < (x + 1) * rows; ++i) {
            for (std::int64_t j = y * keys; j < (y + 1) * keys; ++j) {
              const bool here = i < n_q && j < n_k, sees = here && visible(b, h, i, j);
              pairs += here ? 1 : 0;
              seen += sees ? 1 : 0;
              tile.push_back(sees || !here ? 1 : 0);  // beyond the last row or key anything goes
            }
          }
          if (seen == 0 && (x + y) % 5 != 0) continue;  // else a tile that hides everything
          blocks.push_back(y);
          blocks.push_back(seen == pairs ? -1 : static_cast<std::int64_t>(tiles.size()) / (rows * keys));
          if (seen != pairs) tiles.insert(tiles.end(), tile.begin(), tile.end());
        }
        offsets.push_back(static_cast<std::int64_t>(blocks.size()) / 2);
      }
    }
  }
  const auto items = static_cast<std::int64_t>(blocks.size()) / 2;
  const auto count = static_cast<std::int64_t>(tiles.size()) / (rows * keys);
  offsets_ = Array::of_shape<3>(DType::i64, {batch, heads, blocks_q + 1}, Array::kNan, placement);
  blocks_ = Array::of_shape<2>(DType::i64, {items, 2}, Array::kNan, placement);
  const std::array<std::int64_t, 3> shape = {count, rows, keys};
  const std::array<std::int64_t, 3> by_rows = {rows * (keys + 3), keys + 3, 1}, by_keys = {rows * keys, 1, rows};
  tiles_ = Array::with_strides<3>(DType::boolean, shape, sizes.by_keys ? by_keys : by_rows, 1, placement);
  const auto from = [](const auto& values) { return [&values, at = std::size_t{0}](auto...) mutable { return values[at++]; }; };
  offsets_.fill(from(offsets));
  blocks_.fill(from(blocks));
  tiles_.fill(from(tiles));
  mask_ = {.offsets = offsets_.rows(), .blocks = blocks_.table(), .tiles = tiles_.rows()};
}

}  // namespace keel::conformance
