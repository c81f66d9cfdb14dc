#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "keel/ring.h"

namespace keel::ring {
namespace {

TEST(Shard, EveryRowBelongsToOneRankForAnyLengthAndSize) {
  for (const Layout layout : {Layout::contiguous, Layout::zigzag}) {
    for (std::int64_t n = 0; n < 40; ++n) {
      for (int size = 1; size < 12; ++size) {
        std::vector<int> owners(static_cast<std::size_t>(n));
        for (int rank = 0; rank < size; ++rank) {
          for (const Rows& rows : shard(n, size, rank, layout).parts) {
            for (std::int64_t i = rows.begin; i < rows.end; ++i) ++owners[static_cast<std::size_t>(i)];
          }
        }
        EXPECT_TRUE(std::all_of(owners.begin(), owners.end(), [](int count) { return count == 1; }))
            << n << " " << size;
      }
    }
  }
}

TEST(Shard, SizesDifferByAtMostOnePerStretch) {
  for (int rank = 0; rank < 5; ++rank) {
    const std::int64_t rows = shard(1003, 5, rank, Layout::contiguous).size();
    EXPECT_TRUE(rows == 200 || rows == 201);
    const std::int64_t twice = shard(1003, 5, rank, Layout::zigzag).size();
    EXPECT_TRUE(twice >= 200 && twice <= 202);
  }
}

TEST(Shard, ZigzagRanksSeeEquallyManyKeysUnderACausalMask) {
  for (int rank = 0; rank < 4; ++rank) {
    std::int64_t seen = 0;
    for (const Rows& rows : shard(800, 4, rank, Layout::zigzag).parts) {
      for (std::int64_t i = rows.begin; i < rows.end; ++i) seen += i + 1;
    }
    EXPECT_EQ(seen, 800 * 801 / 2 / 4);
  }
}

TEST(Shard, RefusesWhatIsNoRank) {
  EXPECT_THROW((void)shard(10, 0, 0, Layout::zigzag), Error);
  EXPECT_THROW((void)shard(10, 2, 2, Layout::zigzag), Error);
  EXPECT_THROW((void)shard(-1, 2, 0, Layout::zigzag), Error);
}

TEST(Scatter, AndGatherGiveTheWholeAgain) {
  constexpr std::int64_t n = 23, d = 3;
  for (const Layout layout : {Layout::contiguous, Layout::zigzag}) {
    std::vector<float> whole(2 * n * d), back(2 * n * d, -1.0f);
    std::iota(whole.begin(), whole.end(), 0.0f);
    run_threads(5, [&](Transport& transport) {
      const Shard rows = shard(n, 5, transport.rank(), layout);
      std::vector<float> mine(static_cast<std::size_t>(2 * rows.size() * d));
      const auto local = view(mine.data(), {1, 2, rows.size(), d});
      const bool root = transport.rank() == 3;
      scatter(transport, root ? TensorView(view(whole.data(), {1, 2, n, d})) : TensorView{}, local, layout, 3);
      ASSERT_GT(rows.size(), 0);
      EXPECT_EQ(mine[0], static_cast<float>(d * rows.parts[0].begin));
      gather(transport, local, root ? MutableTensorView(view(back.data(), {1, 2, n, d})) : MutableTensorView{}, layout,
             3);
    });
    EXPECT_EQ(whole, back);
  }
}

TEST(Scatter, RefusesAPartOfTheWrongSizeOnAllRanks) {
  int raised = 0;
  std::vector<float> whole(24);
  run_threads(3, [&](Transport& transport) {
    std::vector<float> mine(8);
    const auto local = view(mine.data(), {1, 1, transport.rank() == 1 ? 3 : 4, 2});
    try {
      scatter(transport, view(whole.data(), {1, 1, 12, 2}), local, Layout::contiguous);
    } catch (const Error& error) {
      EXPECT_STREQ(error.what(),
                   "[scatter] mine: expected shape (1, 1, 4, 2) of a whole (1, 1, 12, 2) on rank 1, got (1, 1, 3, 2)");
      __atomic_add_fetch(&raised, 1, __ATOMIC_SEQ_CST);
    }
  });
  EXPECT_EQ(raised, 3);
}

}  // namespace
}  // namespace keel::ring
