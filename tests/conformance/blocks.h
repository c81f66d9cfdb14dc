#pragma once

#include <functional>

#include "conformance/array.h"
#include "keel/attention.h"

namespace keel::conformance {

// A block mask in memory of its own, made from what is visible.
class Blocks {
 public:
  struct Sizes {
    std::array<std::int64_t, 4> scores;  // B, H, N_q, N_k
    std::int64_t rows, keys;             // of a tile
    bool by_keys;                        // tiles store their keys row by row
  };
  using Visible = std::function<bool(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j)>;

  Blocks() = default;
  Blocks(const Sizes& sizes, const Visible& visible, Placement placement);
  Blocks(const Blocks&) = delete;
  Blocks& operator=(Blocks&&) = default;

  const BlockMask* mask() const { return offsets_.exists() ? &mask_ : nullptr; }

 private:
  Array offsets_, blocks_, tiles_;
  BlockMask mask_;
};

}  // namespace keel::conformance
