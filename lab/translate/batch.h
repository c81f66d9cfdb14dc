#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "keel/nn/random.h"
#include "keel/nn/tensor.h"

namespace keel::lab::translate {

inline constexpr std::int64_t kEnd = 0;      // ends a sentence, and precedes its first word
inline constexpr std::int64_t kUnknown = 1;  // a word that the vocabulary does not have

// A pair as numbers of words, without an end.
struct Coded {
  std::vector<std::int64_t> source, target;
};

struct Batch {
  nn::Tensor source;                 // (B, S), the end included; all of one length
  nn::Tensor before;                 // (B, N): the target, shifted by one
  nn::Tensor labels;                 // (B, N): the target and its end, kIgnored past that
  std::int64_t words = 0;            // target words and ends
  std::vector<std::size_t> members;  // which pairs
};

// Source sentences of one length, each followed by the end.
nn::Tensor source_batch(std::span<const Coded> pairs, const std::vector<std::size_t>& members);

// All of `pairs`, in batches of at most `size` of one source length. With `random`, the members and the
// order of batches are drawn; without, they are in order of length.
std::vector<std::vector<std::size_t>> grouped(std::span<const Coded> pairs, std::size_t size, nn::Random* random);

Batch make_batch(std::span<const Coded> pairs, std::vector<std::size_t> members);

}  // namespace keel::lab::translate
