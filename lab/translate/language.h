#pragma once

#include <optional>
#include <vector>

#include "lab/json.h"
#include "lab/translate/bpe.h"
#include "lab/translate/pair.h"
#include "lab/translate/vocabulary.h"

namespace keel::lab::translate {

enum class Units { automatic, words, bpe };  // automatic: words if all fit into the vocabulary

inline constexpr std::size_t kMostWords = 1000;  // in a vocabulary

// How one side's sentences become numbers, and numbers words.
class Language {
 public:
  // Learnt on the sentences of one side of `pairs`.
  Language(const std::vector<Pair>& pairs, std::vector<std::string> Pair::*side, Units units);
  // From json(), checked against what the other constructor makes: it comes from a file that may have been edited.
  // Raises keel::Error or Json::exception.
  explicit Language(const Json& json);
  Json json() const;

  std::int64_t size() const { return vocabulary_.size(); }
  bool splits_words() const { return bpe_.has_value(); }
  std::vector<std::string> units(const std::vector<std::string>& words) const;  // words, or their pieces
  std::vector<std::int64_t> numbers(const std::vector<std::string>& words) const;
  std::vector<std::string> words(const std::vector<std::int64_t>& numbers) const;

 private:
  std::optional<Bpe> bpe_;
  Vocabulary vocabulary_;
};

}  // namespace keel::lab::translate
