#pragma once

#include <functional>
#include <string>
#include <vector>

#include "lab/translate/generator.h"

namespace keel::lab::translate {

inline constexpr std::size_t kLongestLine = 1 << 16;  // bytes
inline constexpr std::size_t kMostInSentence = 50;    // words
inline constexpr std::size_t kFewestPairs = 100;
inline constexpr std::size_t kMostPairs = 1'000'000;

struct PairFile {
  std::vector<Pair> pairs;            // each source sentence once
  std::vector<std::string> problems;  // "line 7: expected …, got …", the first few
  std::size_t lines = 0, bad = 0, repeated = 0;
  bool regular = false;  // neither a pipe nor a device
  std::string digest;    // of its bytes
};

// A user's own pairs: one per line, two columns separated by a tab, UTF-8. Read as a stream; `progress`, called now and
// then with the share read, may throw to stop. A line that cannot be used is left out and reported by its
// number. Raises keel::Error if the file cannot be read, or has fewer than kFewestPairs pairs.
PairFile read_pairs(const std::string& path, const std::function<void(double)>& progress);

// Training, validation and test sets of them, disjoint; the longest twentieth is the second test set.
Sets split_pairs(std::vector<Pair> pairs);

}  // namespace keel::lab::translate
