// The plain CUDA kernels against the oracle, compiled for the CPU: with one lane, and with several in lockstep.
#include <gtest/gtest.h>

#include "conformance/expect.h"
#include "conformance/random.h"
#include "conformance/table.h"
#include "cpu/on_target.h"
#include "cuda/host_run.h"

namespace keel::cuda {
namespace {

using conformance::expect_gradients_match_oracle;
using conformance::expect_matches_oracle;
using conformance::Instance;

TEST(PlainForward, TableMatchesTheOracle) {
  for (const auto& c : conformance::table()) {
    const Instance instance(c);
    expect_matches_oracle(instance, plain_attention<1>);
    expect_matches_oracle(instance, plain_attention<4>);
  }
}

TEST(PlainForward, RandomProblemsMatchTheOracle) {
  for (std::uint64_t seed = 0; seed < random_problems(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const Instance instance(conformance::random_case(seed));
    expect_matches_oracle(instance, plain_attention<1>);
    expect_matches_oracle(instance, plain_attention<4>);
  }
}

TEST(PlainForward, RandomProblemsWithMaskingBiasesMatchTheOracle) {
  for (std::uint64_t seed = 0; seed < random_problems(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const Instance instance(conformance::random_case_with_masking_bias(seed));
    expect_matches_oracle(instance, plain_attention<1>);
    expect_matches_oracle(instance, plain_attention<4>);
  }
}

}  // namespace
}  // namespace keel::cuda
