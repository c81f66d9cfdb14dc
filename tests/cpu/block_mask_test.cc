#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstring>
#include <vector>

#include "conformance/blocks.h"
#include "keel/attention.h"

namespace keel {
namespace {

constexpr std::int64_t kRows = 1024, kSize = 64, kTile = 128;

// A head's rows in pages of their own, which can be taken away.
class Pages {
 public:
  Pages() {
    memory_ = static_cast<float*>(
        mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));  // NOLINT
    for (std::int64_t i = 0; i < kRows * kSize; ++i) memory_[i] = static_cast<float>(i * 37 % 101) / 101 - 0.5f;
  }
  Pages(const Pages&) = delete;
  ~Pages() { munmap(memory_, kBytes); }

  void take_away_tile(std::int64_t tile) { mprotect(memory_ + tile * kTile * kSize, kTile * kSize * 4, PROT_NONE); }
  TensorView view() const { return keel::view(static_cast<const float*>(memory_), {1, 1, kRows, kSize}); }

 private:
  static constexpr std::size_t kBytes = kRows * kSize * 4;
  float* memory_;
};

// Keys of tiles that no block of queries lists are not even read.
TEST(BlockMask, WorkFollowsTheTilesThatAreListed) {
  const auto visible = [](auto, auto, std::int64_t i, std::int64_t j) {
    return j / kTile % 2 == 0 && (i / kTile % 2 == 0 || (i + j) % 3 == 0);
  };
  const conformance::Blocks blocks({{1, 1, kRows, kRows}, kTile, kTile, false}, visible,
                                   conformance::Placement::aligned);
  std::vector<std::int64_t> listed;  // without the tiles that Blocks lists though they hide everything
  BlockMask mask = *blocks.mask();
  std::vector<std::int64_t> offsets = {0};
  const auto* const from = static_cast<const std::int64_t*>(mask.blocks.data);
  const auto* const ends = static_cast<const std::int64_t*>(mask.offsets.data);
  for (std::int64_t x = 0; x < kRows / kTile; ++x) {
    for (std::int64_t at = ends[x]; at < ends[x + 1]; ++at) {
      if (from[2 * at] % 2 == 0) listed.insert(listed.end(), {from[2 * at], from[2 * at + 1]});
    }
    offsets.push_back(std::ssize(listed) / 2);
  }
  mask.offsets.data = offsets.data();
  mask.blocks = {listed.data(), DType::i64, {std::ssize(listed) / 2, 2}, {2, 1}};

  const std::vector<float> q(kRows * kSize, 0.25f), dout(kRows * kSize, 0.5f);
  std::vector<float> out(kRows * kSize), lse(kRows), dq(kRows * kSize), dk(kRows * kSize), dv(kRows * kSize);
  const auto tensor = [](auto& x) { return keel::view(x.data(), {1, 1, kRows, kSize}); };
  Pages k, v;
  for (std::int64_t tile = 1; tile < kRows / kTile; tile += 2) k.take_away_tile(tile), v.take_away_tile(tile);
  for (const int threads : {1, 2}) {
    const Options options = {.block_mask = &mask, .threads = threads};
    attention(tensor(q), k.view(), v.view(), tensor(out), options, {.lse = row_view(lse.data(), {1, 1, kRows})});
    attention_backward({.q = tensor(q),
                        .k = k.view(),
                        .v = v.view(),
                        .out = tensor(out),
                        .lse = row_view(lse.data(), {1, 1, kRows}),
                        .dout = tensor(dout)},
                       {.dq = tensor(dq), .dk = tensor(dk), .dv = tensor(dv)}, options);
    EXPECT_NE(dk[0], 0.0f);
    EXPECT_EQ(dk[kTile * kSize], 0.0f);
  }
}

}  // namespace
}  // namespace keel
