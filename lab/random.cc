#include "lab/random.h"

#include <cmath>
#include <numbers>

#include "core/dropout.h"

namespace keel::lab {
namespace {

// FNV-1a
constexpr std::uint64_t kBasis = 0xCBF29CE484222325, kPrime = 0x100000001B3;

std::uint64_t hash(std::string_view text, std::uint64_t number) {
  std::uint64_t h = kBasis;
  for (const char c : text) h = (h ^ static_cast<unsigned char>(c)) * kPrime;
  for (int byte = 0; byte < 8; ++byte) h = (h ^ (number >> (8 * byte) & 0xFF)) * kPrime;
  return h;
}

std::uint32_t low(std::uint64_t x) { return static_cast<std::uint32_t>(x); }
std::uint32_t high(std::uint64_t x) { return static_cast<std::uint32_t>(x >> 32); }

// In (0, 1), from 53 of 64 bits.
double uniform(std::uint32_t a, std::uint32_t b) {
  const std::uint64_t bits = (std::uint64_t{a} << 32 | b) >> 11;
  return (static_cast<double>(bits) + 0.5) * 0x1p-53;
}

}  // namespace

Random::Random(std::uint64_t seed, std::string_view stream, std::uint64_t repeat)
    : seed_(seed), stream_(hash(stream, repeat)) {}

void Random::normal(std::span<double> values, double sd, double mean) {
  for (std::size_t i = 0; i < values.size(); i += 2, ++at_) {  // Box and Muller: two uniforms give two normals
    const auto words = philox({low(at_), high(at_), low(stream_), high(stream_)}, {low(seed_), high(seed_)});
    const double radius = std::sqrt(-2.0 * std::log(uniform(words[0], words[1])));
    const double angle = 2.0 * std::numbers::pi * uniform(words[2], words[3]);
    values[i] = mean + sd * radius * std::cos(angle);
    if (i + 1 < values.size()) values[i + 1] = mean + sd * radius * std::sin(angle);
  }
}

}  // namespace keel::lab
