// The streaming backward kernel against the oracle, on every SIMD target that this machine has.
#include <gtest/gtest.h>

#include "conformance/expect.h"
#include "conformance/random.h"
#include "conformance/table.h"
#include "cpu/forced.h"
#include "cpu/on_target.h"

namespace keel {
namespace {

using conformance::expect_gradients_match_oracle;
using conformance::Instance;

class Backward : public OnTarget {};

TEST_P(Backward, TableMatchesTheOracle) {
  const auto run = forced_backward({.target = target()});
  for (const auto& c : conformance::table()) expect_gradients_match_oracle(Instance(c), run);
}

// Small tiles cross every boundary: several blocks of rows, several of keys, in one task a head or in tasks of their own.
TEST_P(Backward, TableMatchesTheOracleWithSmallTiles) {
  const auto whole = forced_backward({.target = target(), .tiles = {12, 64}, .split_keys = false});
  const auto split = forced_backward({.target = target(), .tiles = {24, 64}, .split_keys = true});
  for (const auto& c : conformance::table()) {
    const Instance instance(c);
    expect_gradients_match_oracle(instance, whole);
    expect_gradients_match_oracle(instance, split);
  }
}

TEST_P(Backward, RandomProblemsMatchTheOracle) {
  const auto run = forced_backward({.target = target()});
  const auto small = forced_backward({.target = target(), .tiles = {12, 64}, .split_keys = true});
  for (std::uint64_t seed = 0; seed < random_problems(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    expect_gradients_match_oracle(Instance(conformance::random_case(seed)), seed % 2 == 0 ? run : small);
  }
}

KEEL_ON_EVERY_TARGET(Backward);

}  // namespace
}  // namespace keel
