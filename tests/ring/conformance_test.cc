// Results of several ranks against the oracle, and against the bits of one process.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>

#include "conformance/expect.h"
#include "conformance/expected.h"
#include "conformance/random.h"
#include "conformance/seeds.h"
#include "conformance/table.h"
#include "ring/over_ranks.h"

namespace keel::conformance {
namespace {

constexpr int kSizes[] = {1, 2, 3, 5, 8};

// Decode has no weights, and ring leaves dropped ones at 0 in a row that is NaN.
bool serves(const Ranks& ranks, const Case& c) {
  if (c.weights == Weights::none || ranks.mode == ring::Mode::ordered) return true;
  return ranks.mode == ring::Mode::ring && c.values != Values::nan_visible;
}

// Ring and decode join by lse, as slices do; ordered starts from nothing but the keys. Sums per key start from lse.
bool is_told(const Ranks& ranks, const Case& c) {
  return lse_tells_weights(c) || (ranks.mode == ring::Mode::ordered && !c.key_sums);
}

void expect_conforms(const Case& c, const Ranks& ranks) {
  SCOPED_TRACE(describe(ranks));
  const Instance instance(for_many_processes(c));
  if (serves(ranks, c) && is_told(ranks, c)) expect_matches_oracle(instance, over_ranks(ranks));
  if (ranks.mode == ring::Mode::ring && lse_tells_weights(c)) {
    expect_gradients_match_oracle(instance, backward_over_ranks(ranks));
  }
}

class OverRanks : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Size, OverRanks, testing::ValuesIn(kSizes), testing::PrintToStringParamName());

TEST_P(OverRanks, EveryCaseMatchesTheOracle) {
  int number = 0;
  for (const Case& c : table()) {
    const auto layout = ++number % 2 == 0 ? ring::Layout::contiguous : ring::Layout::zigzag;
    for (const auto mode : {ring::Mode::ring, ring::Mode::ordered, ring::Mode::decode}) {
      expect_conforms(c, {GetParam(), layout, mode});
    }
  }
}

TEST_P(OverRanks, RandomProblemsMatchTheOracle) {
  for (const std::uint64_t seed : seeds(400)) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const auto layout = seed % 2 == 0 ? ring::Layout::zigzag : ring::Layout::contiguous;
    constexpr ring::Mode modes[] = {ring::Mode::ring, ring::Mode::ring, ring::Mode::ordered, ring::Mode::decode};
    // Sizes take different problems: 400 seeds are 2,000 problems.
    expect_conforms(random_case(seed * 8 + static_cast<std::uint64_t>(GetParam()) % 8 + 10'000),
                    {GetParam(), layout, modes[seed / 2 % 4]});
    if (testing::Test::HasFailure()) return;
  }
}

}  // namespace
}  // namespace keel::conformance
