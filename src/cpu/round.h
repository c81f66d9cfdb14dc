#pragma once

#include <cstdint>

namespace keel::cpu {

// Of numbers that are not negative: without a sign, a division by a constant power of two is a shift or a mask alone.
constexpr std::int64_t RoundUp(std::int64_t n, std::int64_t multiple) {
  const auto of = static_cast<std::uint64_t>(multiple);
  return static_cast<std::int64_t>((static_cast<std::uint64_t>(n) + of - 1) / of * of);
}
constexpr std::int64_t RoundDown(std::int64_t n, std::int64_t multiple) {
  const auto of = static_cast<std::uint64_t>(multiple);
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(n) / of * of);
}

}  // namespace keel::cpu
