#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace keel::lab::translate {

// Corpus BLEU as sacreBLEU defines it: up to four words at a time, brevity penalty, `exp` smoothing, case as it is.

enum class Tokens {
  none,  // words separated by Unicode white space
  v13a,  // punctuation separated as well: mteval-v13a, sacreBLEU's default
};
std::vector<std::string> tokenised(const std::string& line, Tokens tokens);

struct BleuCounts {
  std::array<std::int64_t, 4> matches{}, totals{};  // of 1 to 4 words
  std::int64_t length = 0, reference_length = 0;    // words; of several references, the one closest in length
};

// From 0 to 100.
double bleu(const BleuCounts& counts);

// `references[i]` are those of `translations[i]`, at least one.
BleuCounts count_matches(std::span<const std::string> translations,
                         std::span<const std::vector<std::string>> references, Tokens tokens);

}  // namespace keel::lab::translate
