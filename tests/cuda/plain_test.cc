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

void expect_both_match_oracle(const Instance& instance) {
  expect_matches_oracle(instance, plain_attention<1>);
  expect_matches_oracle(instance, plain_attention<4>);
  expect_gradients_match_oracle(instance, plain_attention_backward<1>);
  expect_gradients_match_oracle(instance, plain_attention_backward<4>);
}

TEST(PlainKernels, TableMatchesTheOracle) {
  for (const auto& c : conformance::table()) expect_both_match_oracle(Instance(c));
}

TEST(PlainKernels, RandomProblemsMatchTheOracle) {
  for (std::uint64_t seed = 0; seed < random_problems(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    expect_both_match_oracle(Instance(conformance::random_case(seed)));
  }
}

TEST(PlainKernels, RandomProblemsWithMaskingBiasesMatchTheOracle) {
  for (std::uint64_t seed = 0; seed < random_problems(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    expect_both_match_oracle(Instance(conformance::random_case_with_masking_bias(seed)));
  }
}

}  // namespace
}  // namespace keel::cuda
