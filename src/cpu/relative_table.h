#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "core/call.h"
#include "core/element.h"
#include "plan/tiles.h"

// A bias by distance as kernels read it. The biases of a row are those of the table from some distance on, and beyond
// the table's ends its first and last value. With as many copies of these as a block has keys before and after each row
// of the table, the biases of any row and block lie side by side, as a dense bias would.
namespace keel::cpu {

// Values per row of the padded table.
constexpr std::int64_t relative_length(std::int64_t radius, std::int64_t pad) { return 2 * (radius + pad) + 1; }

// Where the biases from this distance on begin, for at most `pad` keys.
constexpr std::int64_t relative_start(std::int64_t distance, std::int64_t radius, std::int64_t pad) {
  return std::clamp(distance, -radius - pad, radius) + radius + pad;
}

class RelativeTable {
 public:
  // How many copies: a block's keys and the vectors that it is rounded up to.
  static constexpr std::int64_t pad_of(const Tiles& tiles) { return tiles.key_block + 256; }

  // Takes the place of call.relative_bias, if there is one, as long as it lives.
  RelativeTable(Call& call, const Tiles& tiles) {
    if (!call.relative_bias) return;
    const Strided from = call.relative_bias;
    const std::int64_t pad = pad_of(tiles), length = relative_length(call.radius, pad);
    const std::int64_t heads = from.head == 0 ? 1 : call.q_heads;
    const DType dtype = call.dtype == DType::f64 ? DType::f64 : DType::f32;
    memory_.resize(static_cast<std::size_t>(heads * length * size_of(dtype)));
    for (std::int64_t h = 0; h < heads; ++h) {
      for (std::int64_t x = 0; x < length; ++x) {
        const std::int64_t at = std::clamp<std::int64_t>(x - pad, 0, 2 * call.radius);
        store(memory_.data(), dtype, h * length + x, load(from.data, from.dtype, h * from.head + at * from.column));
      }
    }
    call.relative_bias = {memory_.data(), dtype, 0, heads == 1 ? 0 : length, 0, 1};
    call.relative_pad = pad;
  }
  RelativeTable(const RelativeTable&) = delete;

 private:
  std::vector<std::byte> memory_;
};

}  // namespace keel::cpu
