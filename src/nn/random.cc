#include "keel/nn/random.h"

#include "core/element.h"
#include "core/hash.h"
#include "core/random.h"
#include "nn/check.h"
#include "nn/tape.h"

namespace keel::nn {

Random::Random(std::uint64_t seed, std::string_view stream) : seed_(seed), stream_(hash_text(stream)) {}

std::uint64_t Random::bits() {
  const auto words = random_words(seed_, stream_, place_);
  ++place_;
  return join_words(words[0], words[1]);
}

double Random::uniform() { return to_uniform(bits()); }

std::int64_t Random::below(std::int64_t n) {
  if (n < 1) refuse("random", "n: expected at least 1, got ", n);
  return static_cast<std::int64_t>(static_cast<unsigned __int128>(bits()) * static_cast<std::uint64_t>(n) >> 64);
}

Tensor Random::normal(const Shape& shape, double sd, double mean, DType dtype) {
  Tensor y = Tensor::zeros(shape, dtype);
  check_floating("random", "dtype", y);
  for (std::int64_t i = 0; i < y.elements(); i += 2) {
    const double first = uniform(), second = uniform();
    const auto pair = normal_pair(first, second, sd);
    store(y.impl()->storage->data(), dtype, i, mean + pair[0]);
    if (i + 1 < y.elements()) store(y.impl()->storage->data(), dtype, i + 1, mean + pair[1]);
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
