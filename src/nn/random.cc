#include "keel/nn/random.h"

#include <cmath>
#include <numbers>

#include "core/dropout.h"
#include "core/element.h"
#include "nn/check.h"
#include "nn/tape.h"

namespace keel::nn {
namespace {

// FNV-1a
std::uint64_t hash(std::string_view text) {
  std::uint64_t h = 0xCBF29CE484222325;
  for (const char c : text) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001B3;
  return h;
}

std::uint32_t low(std::uint64_t x) { return static_cast<std::uint32_t>(x); }
std::uint32_t high(std::uint64_t x) { return static_cast<std::uint32_t>(x >> 32); }

// In (0, 1), from 53 of 64 bits.
double to_uniform(std::uint64_t bits) { return (static_cast<double>(bits >> 11) + 0.5) * 0x1p-53; }

}  // namespace

Random::Random(std::uint64_t seed, std::string_view stream) : seed_(seed), stream_(hash(stream)) {}

std::uint64_t Random::bits() {
  const auto words = philox({low(place_), high(place_), low(stream_), high(stream_)}, {low(seed_), high(seed_)});
  ++place_;
  return std::uint64_t{words[0]} << 32 | words[1];
}

double Random::uniform() { return to_uniform(bits()); }

std::int64_t Random::below(std::int64_t n) {
  if (n < 1) refuse("random", "n: expected at least 1, got ", n);
  return static_cast<std::int64_t>(static_cast<unsigned __int128>(bits()) * static_cast<std::uint64_t>(n) >> 64);
}

Tensor Random::normal(const Shape& shape, double sd, double mean, DType dtype) {
  Tensor y = Tensor::zeros(shape, dtype);
  check_floating("random", "dtype", y);
  for (std::int64_t i = 0; i < y.elements(); i += 2) {  // Box and Muller: two uniforms give two normals
    const double radius = std::sqrt(-2.0 * std::log(uniform()));
    const double angle = 2.0 * std::numbers::pi * uniform();
    store(y.impl()->storage->data(), dtype, i, mean + sd * radius * std::cos(angle));
    if (i + 1 < y.elements()) store(y.impl()->storage->data(), dtype, i + 1, mean + sd * radius * std::sin(angle));
  }
  return y;
}

Tensor Random::uniform(const Shape& shape, double from, double to, DType dtype) {
  Tensor y = Tensor::zeros(shape, dtype);
  check_floating("random", "dtype", y);
  for (std::int64_t i = 0; i < y.elements(); ++i) {
    store(y.impl()->storage->data(), dtype, i, from + (to - from) * uniform());
  }
  return y;
}

}  // namespace keel::nn
