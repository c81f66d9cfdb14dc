#pragma once

#include <cstdint>

#include "cuda/hopper/forward.h"
#include "cuda/hopper/ptx.cuh"

// Dropout's random numbers (core/dropout.h), as accumulators need them: four to a counter, for keys 16 apart of the
// same 64. A counter's words are key, row, head and entry. In the first three of its ten rounds most products depend on
// the key or on the row alone, and are computed once for all that share them. Four counters take their rounds in step:
// a product waits for its counter's last round, not for other counters.
namespace keel::cuda::hopper {

constexpr std::uint64_t kDropoutM0 = 0xD2511F53, kDropoutM1 = 0xCD9E8D57;

KEEL_DEVICE std::uint32_t high_of(std::uint64_t x) { return static_cast<std::uint32_t>(x >> 32); }
KEEL_DEVICE std::uint32_t low_of(std::uint64_t x) { return static_cast<std::uint32_t>(x); }

// Of the second round's product, the keys of later rounds put in.
struct DropoutRow {
  std::uint32_t high, low;
};
KEEL_DEVICE DropoutRow dropout_row(const DropoutArguments& a, int head, int row) {
  const std::uint64_t first = kDropoutM1 * static_cast<std::uint32_t>(head);
  const std::uint64_t second = kDropoutM0 * (high_of(first) ^ static_cast<std::uint32_t>(row) ^ a.keys[0]);
  return {high_of(second) ^ a.keys[3], low_of(second)};
}

// Of the first three rounds' products, likewise.
struct DropoutKey {
  std::uint32_t first, second, high, low;
};
KEEL_DEVICE DropoutKey dropout_key(const DropoutArguments& a, int head, int entry, int counter) {
  const std::uint64_t of_head = kDropoutM1 * static_cast<std::uint32_t>(head);
  const std::uint64_t first = kDropoutM0 * static_cast<std::uint32_t>(counter);
  const std::uint64_t second = kDropoutM1 * (high_of(first) ^ (static_cast<std::uint32_t>(entry) ^ a.keys[1]));
  const std::uint64_t third = kDropoutM0 * (high_of(second) ^ (low_of(of_head) ^ a.keys[2]));
  return {low_of(first), low_of(second) ^ a.keys[4], high_of(third) ^ a.keys[5], low_of(third)};
}

// The four words of each of four counters, that of row r and key b being x[2·r + b].
KEEL_DEVICE void dropout_words(const DropoutArguments& a, const DropoutRow (&rows)[2], const DropoutKey (&keys)[2][2],
                               std::uint32_t (&x)[4][4]) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const DropoutRow& row = rows[i / 2];
    const DropoutKey& key = keys[i / 2][i % 2];
    const std::uint64_t product = kDropoutM1 * (row.high ^ key.first);
    x[i][0] = high_of(product) ^ key.second;
    x[i][1] = low_of(product);
    x[i][2] = key.high ^ row.low;
    x[i][3] = key.low;
  }
#pragma unroll
  for (int round = 3; round < 10; ++round) {
    std::uint64_t even[4], odd[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      even[i] = kDropoutM0 * x[i][0];
      odd[i] = kDropoutM1 * x[i][2];
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      x[i][0] = high_of(odd[i]) ^ x[i][1] ^ a.keys[2 * round];
      x[i][2] = high_of(even[i]) ^ x[i][3] ^ a.keys[2 * round + 1];
      x[i][1] = low_of(odd[i]);
      x[i][3] = low_of(even[i]);
    }
  }
}

}  // namespace keel::cuda::hopper
