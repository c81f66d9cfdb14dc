#pragma once

#include <cstdint>

#include "core/dropout.h"

// Dropout's random bits (core/dropout.h), as accumulators need them: a counter has those of eight keys, which are 8
// apart of the same 64. A counter's words are key, row, head and entry. In the first three of its seven rounds most
// products depend on the key or on the row alone, and are computed once for all that share them. Four counters take
// their rounds in step: a product waits for its counter's last round, not for other counters. Plain functions of
// numbers, for the kernels and for the tests that need no GPU.
namespace keel::cuda::hopper {

// Dropout's keys, two per round, and what decides: the least random bits that keep a weight, in the upper half.
struct DropoutArguments {
  std::uint32_t keys[2 * Dropout::kRounds] = {};
  std::uint32_t threshold = 0;
  float factor = 1;  // of a weight that is kept
};

constexpr DropoutArguments dropout_arguments(const Dropout& dropout) {
  DropoutArguments a;
  a.threshold = dropout.threshold << 16;
  a.factor = static_cast<float>(dropout.factor);
  for (std::uint32_t round = 0; round < Dropout::kRounds; ++round) {
    a.keys[2 * round] = dropout.key[0] + round * 0x9E3779B9u;
    a.keys[2 * round + 1] = dropout.key[1] + round * 0xBB67AE85u;
  }
  return a;
}

constexpr std::uint64_t kDropoutM0 = 0xD2511F53, kDropoutM1 = 0xCD9E8D57;

constexpr std::uint32_t high_of(std::uint64_t x) { return static_cast<std::uint32_t>(x >> 32); }
constexpr std::uint32_t low_of(std::uint64_t x) { return static_cast<std::uint32_t>(x); }

// Of the second round's product, the keys of later rounds put in.
struct DropoutRow {
  std::uint32_t high, low;
};
constexpr DropoutRow dropout_row(const DropoutArguments& a, int head, int row) {
  const std::uint64_t first = kDropoutM1 * static_cast<std::uint32_t>(head);
  const std::uint64_t second = kDropoutM0 * (high_of(first) ^ static_cast<std::uint32_t>(row) ^ a.keys[0]);
  return {high_of(second) ^ a.keys[3], low_of(second)};
}

// Of the first three rounds' products, likewise.
struct DropoutKey {
  std::uint32_t first, second, high, low;
};
constexpr DropoutKey dropout_key(const DropoutArguments& a, int head, int entry, int counter) {
  const std::uint64_t of_head = kDropoutM1 * static_cast<std::uint32_t>(head);
  const std::uint64_t first = kDropoutM0 * static_cast<std::uint32_t>(counter);
  const std::uint64_t second = kDropoutM1 * (high_of(first) ^ (static_cast<std::uint32_t>(entry) ^ a.keys[1]));
  const std::uint64_t third = kDropoutM0 * (high_of(second) ^ (low_of(of_head) ^ a.keys[2]));
  return {low_of(first), low_of(second) ^ a.keys[4], high_of(third) ^ a.keys[5], low_of(third)};
}

// The four words of each of four counters, that of row r and key b being x[2·r + b].
constexpr void dropout_words(const DropoutArguments& a, const DropoutRow (&rows)[2], const DropoutKey (&keys)[2][2],
                             std::uint32_t (&x)[4][4]) {
  for (int i = 0; i < 4; ++i) {
    const DropoutRow& row = rows[i / 2];
    const DropoutKey& key = keys[i / 2][i % 2];
    const std::uint64_t product = kDropoutM1 * (row.high ^ key.first);
    x[i][0] = high_of(product) ^ key.second;
    x[i][1] = low_of(product);
    x[i][2] = key.high ^ row.low;
    x[i][3] = key.low;
  }
  for (int round = 3; round < Dropout::kRounds; ++round) {
    std::uint64_t even[4], odd[4];
    for (int i = 0; i < 4; ++i) {
      even[i] = kDropoutM0 * x[i][0];
      odd[i] = kDropoutM1 * x[i][2];
    }
    for (int i = 0; i < 4; ++i) {
      x[i][0] = high_of(odd[i]) ^ x[i][1] ^ a.keys[2 * round];
      x[i][2] = high_of(even[i]) ^ x[i][3] ^ a.keys[2 * round + 1];
      x[i][1] = low_of(odd[i]);
      x[i][3] = low_of(even[i]);
    }
  }
}

// The random bits of a key and of the one 8 further on, as the backward pass has them: keys are rows of its products.
struct DropoutPair {
  std::uint32_t first, second;
};
constexpr DropoutPair dropout_pair(const Dropout& dropout, int entry, int head, int row, int key) {
  const auto word_of = [&](int j) {
    const auto words = philox<Dropout::kRounds>({Dropout::counter_of(j), static_cast<std::uint32_t>(row),
                                                 static_cast<std::uint32_t>(head), static_cast<std::uint32_t>(entry)},
                                                dropout.key);
    const int which = j / 16 % 4;  // an index would put the words in memory
    const std::uint32_t low = which & 1 ? words[1] : words[0], high = which & 1 ? words[3] : words[2];
    return which & 2 ? high : low;
  };
  const std::uint32_t word = word_of(key);
  if (key % 16 < 8) return {word & 0xFFFF, word >> 16};
  return {word >> 16, word_of(key + 8) & 0xFFFF};
}

}  // namespace keel::cuda::hopper
