#pragma once

#include <cstdint>
#include <cstdlib>
#include <numeric>
#include <vector>

namespace keel::conformance {

// Seeds of random problems: 0 to count − 1; KEEL_TEST_SEEDS=n takes n of them instead, KEEL_TEST_SEED=s that one.
inline std::vector<std::uint64_t> seeds(std::uint64_t count) {
  if (const char* one = std::getenv("KEEL_TEST_SEED")) return {std::strtoull(one, nullptr, 10)};
  if (const char* many = std::getenv("KEEL_TEST_SEEDS")) count = std::strtoull(many, nullptr, 10);
  std::vector<std::uint64_t> list(count);
  std::iota(list.begin(), list.end(), std::uint64_t{0});
  return list;
}

}  // namespace keel::conformance
