// The streaming forward kernel against the oracle, on every SIMD target that this machine has.
#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <cmath>

#include "conformance/expect.h"
#include "conformance/random.h"
#include "conformance/table.h"
#include "cpu/forced.h"
#include "cpu/on_target.h"

namespace keel {
namespace {

using conformance::expect_matches_oracle;
using conformance::Instance;

class Forward : public OnTarget {};

// On every target: as planned; with small tiles, which cross every boundary (several blocks a chunk, several chunks a
// row), whole and split. One test for all, since what the oracle says takes longer than the kernels.
void expect_on_every_target(const Instance& instance) {
  for (const std::int64_t target : machine().target_bits) {
    SCOPED_TRACE(hwy::TargetName(target));
    expect_matches_oracle(instance, forced_forward({.target = target}));
    expect_matches_oracle(instance, forced_forward({.target = target, .tiles = {12, 64, 128}, .split_keys = false}));
    expect_matches_oracle(instance, forced_forward({.target = target, .tiles = {24, 64, 64}, .split_keys = true}));
  }
}

TEST(ForwardOnEveryTarget, TableMatchesTheOracle) {
  for (const auto& c : conformance::table()) expect_on_every_target(Instance(c));
}

TEST(ForwardOnEveryTarget, RandomProblemsMatchTheOracle) {
  for (std::uint64_t seed = 0; seed < random_problems(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    expect_on_every_target(Instance(conformance::random_case(seed)));
  }
}

// Sums over very many keys: all weights equal, all values 1.
template <class T>
double worst_of_flat_softmax(std::int64_t target) {
  constexpr std::int64_t n_k = 262144, d = 4;
  std::vector<T> q(d), k(n_k * d), v(n_k * d), out(d);
  for (auto& x : v) {
    if constexpr (std::is_same_v<T, Float16>) {
      x = to_float16(1.0);
    } else if constexpr (std::is_same_v<T, BFloat16>) {
      x = to_bfloat16(1.0);
    } else {
      x = T{1};
    }
  }
  run_forced(view(q.data(), {1, 1, 1, d}), view(k.data(), {1, 1, n_k, d}), view(v.data(), {1, 1, n_k, d}),
             view(out.data(), {1, 1, 1, d}), {}, {}, {.target = target});
  double worst = 0;
  for (const T x : out) {
    if constexpr (sizeof(T) == 2) {
      worst = std::max(worst, std::fabs(static_cast<double>(to_float(x)) - 1.0));
    } else {
      worst = std::max(worst, std::fabs(static_cast<double>(x) - 1.0));
    }
  }
  return worst;
}

TEST_P(Forward, FlatSoftmaxOverManyKeysIsOne) {
  EXPECT_LE(worst_of_flat_softmax<float>(target()), 1e-5);
  EXPECT_LE(worst_of_flat_softmax<double>(target()), 1e-12);
  EXPECT_EQ(worst_of_flat_softmax<Float16>(target()), 0.0);
  EXPECT_EQ(worst_of_flat_softmax<BFloat16>(target()), 0.0);
}

KEEL_ON_EVERY_TARGET(Forward);

}  // namespace
}  // namespace keel
