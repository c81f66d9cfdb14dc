#include "lab/random.h"

#include "core/hash.h"
#include "core/random.h"

namespace keel::lab {
namespace {

std::uint64_t hash(std::string_view text, std::uint64_t number) {
  std::uint64_t h = hash_text(text);
  for (int byte = 0; byte < 8; ++byte) h = hash_byte(h, number >> (8 * byte) & 0xFF);
  return h;
}

double uniform(std::uint32_t high, std::uint32_t low) { return to_uniform(join_words(high, low)); }

}  // namespace

Random::Random(std::uint64_t seed, std::string_view stream, std::uint64_t repeat)
    : seed_(seed), stream_(hash(stream, repeat)) {}

void Random::normal(std::span<double> values, double sd, double mean) {
  for (std::size_t i = 0; i < values.size(); i += 2, ++at_) {
    const auto words = random_words(seed_, stream_, at_);
    const auto pair = normal_pair(uniform(words[0], words[1]), uniform(words[2], words[3]), sd);
    values[i] = mean + pair[0];
    if (i + 1 < values.size()) values[i + 1] = mean + pair[1];
  }
}

}  // namespace keel::lab
