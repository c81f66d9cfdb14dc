#pragma once

#include <array>
#include <cstdint>

namespace keel {

// Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3"): four random words from a counter and a
// key.
constexpr std::array<std::uint32_t, 4> philox(std::array<std::uint32_t, 4> counter, std::array<std::uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t a = std::uint64_t{0xD2511F53} * counter[0];
    const std::uint64_t b = std::uint64_t{0xCD9E8D57} * counter[2];
    counter = {static_cast<std::uint32_t>(b >> 32) ^ counter[1] ^ key[0], static_cast<std::uint32_t>(b),
               static_cast<std::uint32_t>(a >> 32) ^ counter[3] ^ key[1], static_cast<std::uint32_t>(a)};
    key[0] += 0x9E3779B9;
    key[1] += 0xBB67AE85;
  }
  return counter;
}

// Which weights dropout keeps: a function of (seed, entry, head, query, key) alone. A weight is kept when its random
// word is at least `threshold` and then multiplied by `factor`.
//
// Key j takes word (j/16) mod 4 of the counter whose first word is 16·(j/64) + j mod 16: a vector of up to 16
// successive counters then yields four vectors of successive keys, with no shuffle.
struct Dropout {
  std::uint64_t threshold = 0;  // of 2^32
  double factor = 1.0;
  std::array<std::uint32_t, 2> key{};

  constexpr Dropout(double probability, std::uint64_t seed)
      : threshold(static_cast<std::uint64_t>(probability * 0x1p32 + 0.5)),
        factor(probability < 1.0 ? 1.0 / (1.0 - probability) : 0.0),
        key{static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)} {}

  // 0 or `factor`
  constexpr double multiplier(std::int64_t entry, std::int64_t head, std::int64_t query, std::int64_t j) const {
    const auto words = philox({static_cast<std::uint32_t>(16 * (j / 64) + j % 16), static_cast<std::uint32_t>(query),
                               static_cast<std::uint32_t>(head), static_cast<std::uint32_t>(entry)},
                              key);
    return words[(j / 16) % 4] >= threshold ? factor : 0.0;
  }
};

}  // namespace keel
