#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace keel::lab::translate {

// A sentence in two languages, as words.
struct Pair {
  std::vector<std::string> source, target;
  // For each target word the positions of the source words that it translates; none for a word without a counterpart.
  // Empty if unknown.
  std::vector<std::vector<std::size_t>> alignment;
};

// Words joined by spaces.
std::string joined(const std::vector<std::string>& words);
// Words between spaces; several spaces count as one.
std::vector<std::string> words_of(std::string_view text);

}  // namespace keel::lab::translate
