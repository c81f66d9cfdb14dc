// The CUDA backend on a GPU, against the oracle; skipped where there is none.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>

#include "conformance/expect.h"
#include "conformance/random.h"
#include "conformance/table.h"
#include "cuda/on_gpu.h"

namespace keel::test {
namespace {

using conformance::expect_gradients_match_oracle;
using conformance::expect_matches_oracle;

// What only the CPU serves is refused.
struct Instance : conformance::Instance {
  explicit Instance(const conformance::Case& c) : conformance::Instance(for_any_backend(c)) {}
};

std::uint64_t random_problems(std::uint64_t enough) {
  const char* const asked = std::getenv("KEEL_RANDOM_PROBLEMS");
  return asked != nullptr ? std::strtoull(asked, nullptr, 10) : enough;
}

class Gpu : public testing::Test {
 protected:
  void SetUp() override {
    if (!has_gpu()) GTEST_SKIP() << "no GPU";
  }
  void TearDown() override {
    for (const auto& [kernel, calls] : kernels_) std::printf("%s: %d calls\n", kernel.c_str(), calls);
  }

  // By the plain kernel, and as planned; with lists on the GPU and on the CPU.
  void expect_both(const Instance& instance) {
    expect_matches_oracle(instance, forward_on_gpu({.plain = true, .kernels = &kernels_}));
    expect_matches_oracle(instance, forward_on_gpu({.lists_there = false, .kernels = &kernels_}));
  }

  std::map<std::string, int> kernels_;
};

TEST_F(Gpu, TableMatchesTheOracle) {
  for (const auto& c : conformance::table()) expect_both(Instance(c));
}

TEST_F(Gpu, RandomProblemsMatchTheOracle) {
  for (std::uint64_t seed = 0; seed < random_problems(200); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    expect_both(Instance(conformance::random_case(seed)));
  }
}

TEST_F(Gpu, RandomProblemsForMatrixUnitsMatchTheOracle) {
  for (std::uint64_t seed = 0; seed < random_problems(400); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const Instance instance(conformance::random_case_for_matrix_units(seed));
    expect_matches_oracle(instance, forward_on_gpu({.lists_there = seed % 2 == 0, .kernels = &kernels_}));
  }
}

TEST_F(Gpu, ArraysAtAnyAddressMatchTheOracle) {
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const Instance instance(conformance::random_case_for_matrix_units(seed));
    expect_matches_oracle(instance, forward_on_gpu({.offset = 8, .kernels = &kernels_}));
  }
}

TEST_F(Gpu, GradientsOfTheTableMatchTheOracle) {
  for (const auto& c : conformance::table()) {
    expect_gradients_match_oracle(Instance(c), backward_on_gpu({.kernels = &kernels_}));
  }
}

TEST_F(Gpu, GradientsOfRandomProblemsMatchTheOracle) {
  for (std::uint64_t seed = 0; seed < random_problems(200); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    expect_gradients_match_oracle(Instance(conformance::random_case(seed)), backward_on_gpu({.kernels = &kernels_}));
  }
}

}  // namespace
}  // namespace keel::test
