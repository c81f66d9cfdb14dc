#pragma once

#include <array>
#include <cstdint>

namespace keel {

// Philox4x32 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3"): four random words from a counter and a
// key.
template <int kRounds>
constexpr std::array<std::uint32_t, 4> philox(std::array<std::uint32_t, 4> counter, std::array<std::uint32_t, 2> key) {
  for (int round = 0; round < kRounds; ++round) {
    const std::uint64_t a = std::uint64_t{0xD2511F53} * counter[0];
    const std::uint64_t b = std::uint64_t{0xCD9E8D57} * counter[2];
    counter = {static_cast<std::uint32_t>(b >> 32) ^ counter[1] ^ key[0], static_cast<std::uint32_t>(b),
               static_cast<std::uint32_t>(a >> 32) ^ counter[3] ^ key[1], static_cast<std::uint32_t>(a)};
    key[0] += 0x9E3779B9;
    key[1] += 0xBB67AE85;
  }
  return counter;
}

// Which weights dropout keeps: a function of (seed, entry, head, query, key) alone. A weight is kept, and multiplied by
// `factor`, if its 16 random bits are at least `threshold`. Both follow from the probability rounded to a multiple of
// 2^-16, so that the mean is preserved exactly.
//
// Philox is most of what dropout costs. Seven rounds are the fewest that pass its authors' tests, and each counter
// serves eight keys. Key j takes half (j/8) mod 2, the low one first, of word (j/16) mod 4 of the counter whose first
// word is 8·(j/64) + j mod 8: eight successive counters then yield eight vectors of successive keys, with no shuffle,
// and a thread of a GPU finds in one counter the keys that it holds of a matrix product, which are 8 apart.
struct Dropout {
  static constexpr int kRounds = 7;

  std::uint32_t threshold = 0;  // of 2^16
  double factor = 1.0;
  std::array<std::uint32_t, 2> key{};

  constexpr Dropout(double probability, std::uint64_t seed)
      : threshold(static_cast<std::uint32_t>(probability * 0x1p16 + 0.5)),
        factor(threshold < 0x10000 ? 0x1p16 / (0x10000 - threshold) : 0.0),
        key{static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)} {}

  static constexpr std::uint32_t counter_of(std::int64_t j) { return static_cast<std::uint32_t>(8 * (j / 64) + j % 8); }

  // The bits of key j in its counter's words.
  static constexpr std::uint32_t bits_of(const std::array<std::uint32_t, 4>& words, std::int64_t j) {
    return words[(j / 16) % 4] >> 16 * ((j / 8) % 2) & 0xFFFF;
  }

  // 0 or `factor`
  constexpr double multiplier(std::int64_t entry, std::int64_t head, std::int64_t query, std::int64_t j) const {
    const auto words = philox<kRounds>({counter_of(j), static_cast<std::uint32_t>(query),
                                        static_cast<std::uint32_t>(head), static_cast<std::uint32_t>(entry)},
                                       key);
    return bits_of(words, j) >= threshold ? factor : 0.0;
  }
};

}  // namespace keel
