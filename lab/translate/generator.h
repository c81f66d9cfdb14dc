#pragma once

#include <cstdint>

#include "keel/nn/random.h"
#include "lab/translate/pair.h"

namespace keel::lab::translate {

// English and German sentences of a closed domain: dates, clock times, quantities and prices in words, and what people
// do with them. Grammatical in both, with one German sentence for each English one. Words move: "half past three" is
// "halb vier", "twenty one" is "ein und zwanzig", and most verbs stand last.
Pair generate(nn::Random& random);

// No sentence that is trained on, chosen by or tested with is longer than this, in either language; the sentences of
// `longer` are, in both.
inline constexpr std::size_t kLongest = 16, kLongerAtMost = 30;

struct Sets {
  std::vector<Pair> train, validation, test;
  std::vector<Pair> longer;  // a second test set
};

struct SetSizes {
  std::size_t train = 0, validation = 0, test = 0, longer = 0;
};

// Distinct pairs. Which set a sentence belongs to is decided by its words alone, so no two sets, of whatever seeds,
// share one. Raises if the domain does not have that many.
Sets generate_sets(std::uint64_t seed, const SetSizes& sizes);

}  // namespace keel::lab::translate
