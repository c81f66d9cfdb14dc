#include "bench/documents.h"

#include <algorithm>

namespace keel::bench {
namespace {

constexpr std::int64_t kRows = 128, kKeys = 256;  // of a tile, as keel.torch.document_mask has them

// Ragged ones have lengths from about a sixteenth of the mean to twice the mean, the same ones every time.
std::vector<std::int64_t> offsets_of(std::int64_t count, std::int64_t rows, bool ragged) {
  std::vector<std::int64_t> offsets = {0};
  double sum = 0, part = 0;
  const auto weight = [&](std::int64_t i) { return ragged ? 1.0 + static_cast<double>(i * 37 % 61) / 2.0 : 1.0; };
  for (std::int64_t i = 0; i < count; ++i) sum += weight(i);
  for (std::int64_t i = 0; i < count; ++i) {
    part += weight(i);
    offsets.push_back(i + 1 == count ? rows : static_cast<std::int64_t>(part / sum * static_cast<double>(rows)));
  }
  return offsets;
}

}  // namespace

Documents::Documents(std::int64_t count, std::int64_t rows, bool ragged) : offsets_(offsets_of(count, rows, ragged)) {
  for (std::int64_t i = 0, document = 0; i < rows; ++i) {
    while (i >= offsets_[static_cast<std::size_t>(document + 1)]) ++document;
    first_.push_back(offsets_[static_cast<std::size_t>(document)]);
  }
  starts_ = {0};
  for (std::int64_t i = 0; i < rows; i += kRows) {
    const std::int64_t last = (std::min(i + kRows, rows) - 1) / kKeys;
    for (std::int64_t j = first_[static_cast<std::size_t>(i)] / kKeys; j <= last; ++j) add_tile(i / kRows, j);
    starts_.push_back(std::ssize(blocks_) / 2);
  }
  const std::int64_t items = std::ssize(blocks_) / 2, tiles = std::ssize(tiles_) / (kRows * kKeys);
  mask_ = {.offsets = {starts_.data(), DType::i64, {1, 1, std::ssize(starts_)}, {0, 0, 1}},
           .blocks = {blocks_.data(), DType::i64, {items, 2}, {2, 1}},
           .tiles = {tiles_.data(), DType::boolean, {tiles, kRows, kKeys}, {kRows * kKeys, kKeys, 1}}};
}

void Documents::add_tile(std::int64_t block, std::int64_t key_block) {
  const auto rows = static_cast<std::int64_t>(first_.size());
  std::vector<std::uint8_t> bits;
  for (std::int64_t i = block * kRows; i < (block + 1) * kRows; ++i) {
    for (std::int64_t j = key_block * kKeys; j < (key_block + 1) * kKeys; ++j) {
      bits.push_back(i < rows && j <= i && j >= first_[static_cast<std::size_t>(i)]);
    }
  }
  if (std::none_of(bits.begin(), bits.end(), [](std::uint8_t x) { return x != 0; })) return;
  const bool full = std::all_of(bits.begin(), bits.end(), [](std::uint8_t x) { return x != 0; });
  blocks_.insert(blocks_.end(), {key_block, full ? -1 : std::ssize(tiles_) / (kRows * kKeys)});
  if (!full) tiles_.insert(tiles_.end(), bits.begin(), bits.end());
}

}  // namespace keel::bench
