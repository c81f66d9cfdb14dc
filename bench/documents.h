#pragma once

#include <cstdint>
#include <vector>

#include "keel/attention.h"

namespace keel::bench {

// Documents side by side in one sequence, each of whose rows sees its own document up to itself: as a packed batch, or
// as a block mask of 128 × 256 tiles.
class Documents {
 public:
  Documents(std::int64_t count, std::int64_t rows, bool ragged);
  Documents(const Documents&) = delete;

  const std::vector<std::int64_t>& offsets() const { return offsets_; }
  const BlockMask* mask() const { return &mask_; }

 private:
  void add_tile(std::int64_t block, std::int64_t key_block);

  std::vector<std::int64_t> offsets_;
  std::vector<std::int64_t> first_;  // of each row, the first row of its document
  std::vector<std::int64_t> starts_, blocks_;
  std::vector<std::uint8_t> tiles_;
  BlockMask mask_;
};

}  // namespace keel::bench
