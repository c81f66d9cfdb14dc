#include "lab/translate/vocabulary.h"

#include <algorithm>

#include "lab/translate/batch.h"

namespace keel::lab::translate {

Vocabulary::Vocabulary(const Counts& counts, std::size_t most) : words_{"</s>", "<unk>"} {
  std::vector<std::pair<std::string, std::int64_t>> sorted(counts.begin(), counts.end());
  std::stable_sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
  for (const auto& [word, count] : sorted) {
    if (words_.size() >= most) break;
    words_.push_back(word);
  }
  index();
}

Vocabulary::Vocabulary(std::vector<std::string> words) : words_(std::move(words)) { index(); }

void Vocabulary::index() {
  for (std::size_t i = kUnknown + 1; i < words_.size(); ++i) numbers_.emplace(words_[i], static_cast<std::int64_t>(i));
}

std::int64_t Vocabulary::number(const std::string& word) const {
  const auto found = numbers_.find(word);
  return found == numbers_.end() ? kUnknown : found->second;
}

}  // namespace keel::lab::translate
