#include "lab/translate/language.h"

#include <fmt/format.h>

#include "io/messages.h"
#include "io/utf8.h"
#include "keel/error.h"

namespace keel::lab::translate {
namespace {

Counts counted(const std::vector<Pair>& pairs, std::vector<std::string> Pair::*side) {
  Counts counts;
  for (const Pair& pair : pairs) {
    for (const std::string& word : pair.*side) ++counts[word];
  }
  return counts;
}

std::optional<Bpe> learnt(const Counts& counts, Units units) {
  const bool fits = counts.size() + 2 <= kMostWords;
  if (units == Units::words || (units == Units::automatic && fits)) return {};
  return Bpe(counts, kMostWords - 2);
}

Counts units_of(const Counts& words, const std::optional<Bpe>& bpe) {
  if (!bpe) return words;
  Counts pieces;
  for (const auto& [word, count] : words) {
    for (const std::string& piece : bpe->split(word)) pieces[piece] += count;
  }
  return pieces;
}

}  // namespace

Language::Language(const std::vector<Pair>& pairs, std::vector<std::string> Pair::*side, Units units)
    : bpe_(learnt(counted(pairs, side), units)), vocabulary_(units_of(counted(pairs, side), bpe_), kMostWords) {}

Language::Language(const Json& json) : vocabulary_(json.at("words").get<std::vector<std::string>>()) {
  const auto refuse = [](const std::string& what) {
    throw Error(ErrorCode::bad_file, "[translate] vocabulary: expected " + what);
  };
  if (json.contains("merges")) bpe_.emplace(json.at("merges").get<std::vector<Bpe::Merge>>());
  const std::vector<std::string>& words = vocabulary_.words();
  if (words.size() < 2 || words.size() > kMostWords) {
    refuse(fmt::format("from 2 to {} words, got {}", kMostWords, words.size()));
  }
  if (bpe_ && bpe_->merges().size() > kMostWords) {
    refuse(fmt::format("at most {} merges, got {}", kMostWords, bpe_->merges().size()));
  }
  for (const std::string& word : words) {
    if (word.empty() || io::has_control_character(word)) {
      refuse(fmt::format("words that can be printed, got '{}'", io::printable(word)));
    }
  }
}

Json Language::json() const {
  Json json = {{"words", vocabulary_.words()}};
  if (bpe_) json["merges"] = bpe_->merges();
  return json;
}

std::vector<std::string> Language::units(const std::vector<std::string>& words) const {
  if (!bpe_) return words;
  std::vector<std::string> all;
  for (const std::string& word : words) {
    const std::vector<std::string> pieces = bpe_->split(word);
    all.insert(all.end(), pieces.begin(), pieces.end());
  }
  return all;
}

std::vector<std::int64_t> Language::numbers(const std::vector<std::string>& words) const {
  std::vector<std::int64_t> all;
  for (const std::string& unit : units(words)) all.push_back(vocabulary_.number(unit));
  return all;
}

std::vector<std::string> Language::words(const std::vector<std::int64_t>& numbers) const {
  std::vector<std::string> units;
  for (const std::int64_t number : numbers) units.push_back(vocabulary_.word(number));
  return bpe_ ? Bpe::joined(units) : units;
}

}  // namespace keel::lab::translate
