#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <numbers>

#include "core/dropout.h"

// Random numbers as a function of (seed, stream, position).
namespace keel {

[[nodiscard]] inline std::array<std::uint32_t, 4> random_words(std::uint64_t seed, std::uint64_t stream,
                                                               std::uint64_t position) {
  const auto low = [](std::uint64_t x) { return static_cast<std::uint32_t>(x); };
  const auto high = [](std::uint64_t x) { return static_cast<std::uint32_t>(x >> 32); };
  return philox<10>({low(position), high(position), low(stream), high(stream)}, {low(seed), high(seed)});
}

[[nodiscard]] constexpr std::uint64_t join_words(std::uint32_t high, std::uint32_t low) noexcept {
  return std::uint64_t{high} << 32 | low;
}

// In (0, 1), from 53 of 64 bits.
[[nodiscard]] constexpr double to_uniform(std::uint64_t bits) noexcept {
  return (static_cast<double>(bits >> 11) + 0.5) * 0x1p-53;
}

// Box and Muller: two uniform numbers give two normal ones of standard deviation `sd`.
[[nodiscard]] inline std::array<double, 2> normal_pair(double first, double second, double sd) {
  const double radius = std::sqrt(-2.0 * std::log(first)), angle = 2.0 * std::numbers::pi * second;
  return {sd * radius * std::cos(angle), sd * radius * std::sin(angle)};
}

}  // namespace keel
