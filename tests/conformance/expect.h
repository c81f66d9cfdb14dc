#pragma once

#include <gtest/gtest.h>

#include "conformance/compare.h"

// conformance/compare.h as GoogleTest expectations.
namespace keel::conformance {

inline void expect_matches_oracle(const Instance& instance, const Forward& run = keel::attention) {
  const std::string mismatch = forward_mismatch(instance, run);
  EXPECT_TRUE(mismatch.empty()) << describe(instance.description()) << "\n" << mismatch;
}

inline void expect_gradients_match_oracle(const Instance& instance, const Backward& run = keel::attention_backward) {
  if (!instance.description().gradients) return;
  const std::string mismatch = backward_mismatch(instance, run);
  EXPECT_TRUE(mismatch.empty()) << describe(instance.description()) << "\n" << mismatch;
}

}  // namespace keel::conformance
