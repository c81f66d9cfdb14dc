#pragma once

#include <cmath>
#include <cstdint>
#include <span>

namespace keel::conformance {

// Random numbers that are the same everywhere (SplitMix64). A stream is a purpose, so that adding values for one
// purpose leaves those of the others alone.
class Generator {
 public:
  explicit Generator(std::uint64_t seed, std::uint64_t stream = 0)
      : state_(mixed(mixed(seed) ^ (stream * 0xD1B54A32D192ED03u))) {}

  // What a fuzzer gives: the first eight bytes are a seed, every two of the rest one number, in place of the one that
  // the seed has there, so that a change of the input is a change of one choice. `bytes` outlives the generator.
  explicit Generator(std::span<const std::uint8_t> bytes) : Generator(take(bytes, 8)) { bytes_ = bytes; }

  std::uint64_t next() {
    state_ += 0x9E3779B97F4A7C15u;
    return mixed(bytes_.empty() ? state_ : take(bytes_, 2));
  }

  // from [0, 1)
  double uniform() { return static_cast<double>(next() >> 11) * 0x1p-53; }
  double uniform(double low, double high) { return low + (high - low) * uniform(); }

  // from low to high, both included
  std::int64_t integer(std::int64_t low, std::int64_t high) {
    return low + static_cast<std::int64_t>(next() % static_cast<std::uint64_t>(high - low + 1));
  }

  bool chance(double probability) { return uniform() < probability; }

  template <class T, std::size_t N>
  T pick(const T (&values)[N]) {
    return values[next() % N];
  }

  // standard normal (Box and Muller)
  double normal() {
    const double radius = std::sqrt(-2.0 * std::log(1.0 - uniform()));
    return radius * std::cos(6.283185307179586 * uniform());
  }

 private:
  static std::uint64_t mixed(std::uint64_t z) {
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
  }

  // The number that the first `count` bytes make, or as many as there are; they are gone then.
  static std::uint64_t take(std::span<const std::uint8_t>& bytes, std::size_t count) {
    std::uint64_t number = 0;
    for (; count > 0 && !bytes.empty(); --count, bytes = bytes.subspan(1)) number = number << 8 | bytes.front();
    return number;
  }

  std::uint64_t state_;
  std::span<const std::uint8_t> bytes_;
};

}  // namespace keel::conformance
