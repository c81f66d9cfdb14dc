#include "core/layout.h"

#include <gtest/gtest.h>

#include <limits>
#include <set>

#include "conformance/generator.h"

namespace keel {
namespace {

// A layout with sizes and strides of its own.
struct Array {
  std::uintptr_t base = 0;
  std::int64_t item = 1;
  int rank = 0;
  std::array<std::int64_t, 4> shape{}, strides{};
  operator Layout() const { return {base, item, rank, shape.data(), strides.data()}; }
};

// The bytes of each element, one set per element.
std::vector<std::uintptr_t> places(const Layout& x) {
  std::vector<std::uintptr_t> list;
  std::array<std::int64_t, 4> n{1, 1, 1, 1}, s{};
  for (int i = 0; i < x.rank; ++i) n[i] = x.shape[i], s[i] = x.strides[i];
  for (std::int64_t a = 0; a < n[0]; ++a) {
    for (std::int64_t b = 0; b < n[1]; ++b) {
      for (std::int64_t c = 0; c < n[2]; ++c) {
        for (std::int64_t d = 0; d < n[3]; ++d) {
          list.push_back(x.base + static_cast<std::uintptr_t>((a * s[0] + b * s[1] + c * s[2] + d * s[3]) * x.item));
        }
      }
    }
  }
  return list;
}

std::set<std::uintptr_t> bytes(const Layout& x) {
  std::set<std::uintptr_t> all;
  for (const std::uintptr_t at : places(x)) {
    for (std::int64_t i = 0; i < x.item; ++i) all.insert(at + static_cast<std::uintptr_t>(i));
  }
  return all;
}

Array random_layout(conformance::Generator& random) {
  constexpr std::int64_t items[] = {1, 2, 4, 8};
  Array x;
  x.base = static_cast<std::uintptr_t>(100'000 + random.integer(0, 120));
  x.item = random.pick(items);
  x.rank = static_cast<int>(random.integer(1, 4));
  for (int i = 0; i < x.rank; ++i) {
    x.shape[i] = random.chance(0.03) ? 0 : random.integer(1, 4);
    x.strides[i] = random.chance(0.2) ? random.integer(-30, 30) : random.integer(0, 12);
  }
  return x;
}

std::string text(const Layout& x) {
  std::string s = std::to_string(x.base) + " item " + std::to_string(x.item);
  for (int i = 0; i < x.rank; ++i)
    s.append(" ").append(std::to_string(x.shape[i])).append("*").append(std::to_string(x.strides[i]));
  return s;
}

TEST(Layout, StridesOfAShapeBeyondAllMemoryDoNotOverflow) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  EXPECT_EQ((contiguous_strides<4>({2, kMost, 4, 3})), (std::array<std::int64_t, 4>{kMost, 12, 3, 1}));
}

TEST(ShareMemory, AgreesWithBruteForce) {
  conformance::Generator random(1);
  int sharing = 0;
  for (int n = 0; n < 20000; ++n) {
    const Array a = random_layout(random), b = random_layout(random);
    const auto x = bytes(a), y = bytes(b);
    bool want = false;
    for (const std::uintptr_t at : x) want = want || y.contains(at);
    ASSERT_EQ(share_memory(a, b), want) << text(a) << " and " << text(b);
    ASSERT_EQ(share_memory(b, a), want) << text(a) << " and " << text(b);
    sharing += want;
  }
  EXPECT_GT(sharing, 2000);
  EXPECT_LT(sharing, 18000);
}

TEST(ShareMemory, TellsTheThreePartsOfAPackedArrayApart) {
  // (B, N, 3·H, D) of f16, for sizes far too large to enumerate
  const std::int64_t B = 64, N = 8192, H = 32, D = 128;
  const auto part = [&](std::int64_t which) {
    return Array{static_cast<std::uintptr_t>(1 << 20) + static_cast<std::uintptr_t>(which * H * D * 2),
                 2,
                 4,
                 {B, H, N, D},
                 {N * 3 * H * D, D, 3 * H * D, 1}};
  };
  for (std::int64_t a = 0; a < 3; ++a) {
    for (std::int64_t b = 0; b < 3; ++b) EXPECT_EQ(share_memory(part(a), part(b)), a == b);
  }
}

TEST(ShareMemory, IsNeverSoForEmptyViews) {
  const Array empty{1000, 4, 2, {0, 5}, {5, 1}}, full{1000, 4, 2, {5, 5}, {5, 1}};
  EXPECT_FALSE(share_memory(empty, full));
  EXPECT_FALSE(share_memory(full, empty));
  EXPECT_TRUE(share_memory(full, full));
}

// Exact for strides that nest; otherwise it may say no, but never wrongly yes.
TEST(DistinctElements, NeverClaimsThemWronglyAndKnowsWhatNests) {
  conformance::Generator random(2);
  int distinct = 0;
  for (int n = 0; n < 20000; ++n) {
    const Array x = random_layout(random);
    const auto list = places(x);
    const std::set<std::uintptr_t> set(list.begin(), list.end());
    const bool really = set.size() == list.size();
    if (has_distinct_elements(x)) {
      ASSERT_TRUE(really) << text(x);
      ++distinct;
    }
  }
  EXPECT_GT(distinct, 1000);
}

TEST(DistinctElements, HoldForSlicesTransposesAndReversals) {
  conformance::Generator random(3);
  for (int n = 0; n < 5000; ++n) {
    // A slice of a C-order array, its dimensions then in any order and direction.
    std::array<std::int64_t, 4> full{}, shape{}, strides{};
    std::int64_t step = 1;
    for (std::size_t i = 4; i-- > 0;) {
      full[i] = random.integer(1, 5);
      const std::int64_t every = random.integer(1, full[i]);
      shape[i] = (full[i] + every - 1) / every;
      strides[i] = every * step * (random.chance(0.5) ? 1 : -1);
      step *= full[i];
    }
    for (std::size_t i = 3; i > 0; --i) {
      const auto j = static_cast<std::size_t>(random.integer(0, static_cast<std::int64_t>(i)));
      std::swap(shape[i], shape[j]);
      std::swap(strides[i], strides[j]);
    }
    const Array x{4096, 4, 4, shape, strides};
    EXPECT_TRUE(has_distinct_elements(x)) << text(x);
  }
}

TEST(Extent, FitsUntilTwoToTheSixty) {
  const std::int64_t big = std::int64_t{1} << 40;
  EXPECT_TRUE(extent_of(Array{0, 8, 2, {big, 1 << 16}, {1 << 16, 1}}).fits);
  EXPECT_FALSE(extent_of(Array{0, 8, 2, {big, 1 << 18}, {1 << 18, 1}}).fits);
  EXPECT_FALSE(extent_of(Array{0, 8, 1, {3}, {std::numeric_limits<std::int64_t>::max()}}).fits);
  EXPECT_FALSE(extent_of(Array{0, 8, 1, {3}, {std::numeric_limits<std::int64_t>::min()}}).fits);
  EXPECT_FALSE(extent_of(Array{0, 1, 2, {2, 2}, {std::int64_t{1} << 59, -(std::int64_t{1} << 59)}}).fits);
  EXPECT_TRUE(extent_of(Array{0, 8, 2, {0, 3}, {std::numeric_limits<std::int64_t>::max(), 7}}).fits);
  EXPECT_FALSE(extent_of(Array{0, 8, 2, {3, 0}, {std::numeric_limits<std::int64_t>::max(), 7}}).fits);
  EXPECT_TRUE(extent_of(Array{0, 8, 2, {big, big}, {0, 0}}).fits);
}

TEST(Count, IsTheProductOfTheSizesOrTheLargestNumber) {
  const std::int64_t big = std::int64_t{1} << 40;
  EXPECT_EQ(extent_of(Array{0, 8, 3, {2, 3, 4}, {0, 0, 0}}).count, 24);
  EXPECT_EQ(extent_of(Array{0, 8, 3, {big, 0, big}, {0, 0, 0}}).count, 0);
  EXPECT_EQ(extent_of(Array{0, 8, 2, {big, big}, {0, 0}}).count, std::numeric_limits<std::int64_t>::max());
}

}  // namespace
}  // namespace keel
