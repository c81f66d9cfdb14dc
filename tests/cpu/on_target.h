#pragma once

#include <gtest/gtest.h>

#include <cstdlib>

#include "runtime/machine.h"

// Tests that run once for every SIMD target of this machine.
namespace keel {

// How many random problems a target gets: KEEL_RANDOM_PROBLEMS, for long runs, or enough for every day.
inline std::uint64_t random_problems(std::uint64_t enough = 150) {
  const char* const asked = std::getenv("KEEL_RANDOM_PROBLEMS");
  return asked != nullptr ? std::strtoull(asked, nullptr, 10) : enough;
}

class OnTarget : public testing::TestWithParam<std::size_t> {
 protected:
  std::int64_t target() const { return machine().target_bits[GetParam()]; }
};

#define KEEL_ON_EVERY_TARGET(Suite)                                                             \
  INSTANTIATE_TEST_SUITE_P(On, Suite, testing::Range(std::size_t{0}, machine().targets.size()), \
                           [](const auto& target) { return machine().targets[target.param]; })

}  // namespace keel
