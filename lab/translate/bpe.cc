#include "lab/translate/bpe.h"

#include <algorithm>
#include <set>

namespace keel::lab::translate {
namespace {

constexpr const char* kMark = "@@";

// The characters of a UTF-8 word, each but the last with a mark.
std::vector<std::string> characters(const std::string& word) {
  std::vector<std::string> all;
  for (const char c : word) {
    const bool continues = (static_cast<unsigned char>(c) & 0xc0) == 0x80;
    if (continues && !all.empty())
      all.back() += c;
    else
      all.emplace_back(1, c);
  }
  for (std::size_t i = 0; i + 1 < all.size(); ++i) all[i] += kMark;
  return all;
}

std::string merged(const Bpe::Merge& pair) { return pair.first.substr(0, pair.first.size() - 2) + pair.second; }

// Joins every occurrence of `pair`, from the left.
void apply(const Bpe::Merge& pair, std::vector<std::string>& pieces) {
  std::vector<std::string> result;
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    if (i + 1 < pieces.size() && pieces[i] == pair.first && pieces[i + 1] == pair.second) {
      result.push_back(merged(pair));
      ++i;
    } else {
      result.push_back(std::move(pieces[i]));
    }
  }
  pieces = std::move(result);
}

}  // namespace

// Only the words that have a pair are counted again when it is joined.
Bpe::Bpe(const Counts& words, std::size_t most) {
  struct Known {
    std::vector<std::string> pieces;
    std::int64_t count;
  };
  std::vector<Known> known;
  std::set<std::string> alphabet;
  for (const auto& [word, count] : words) {
    known.push_back({characters(word), count});
    alphabet.insert(known.back().pieces.begin(), known.back().pieces.end());
  }
  struct Occurrence {
    std::int64_t count = 0;
    std::set<std::size_t> words;
  };
  std::map<Merge, Occurrence> pairs;
  const auto count = [&](std::size_t word, std::int64_t sign) {
    const auto& pieces = known[word].pieces;
    for (std::size_t i = 0; i + 1 < pieces.size(); ++i) {
      Occurrence& pair = pairs[{pieces[i], pieces[i + 1]}];
      pair.count += sign * known[word].count;
      if (sign > 0) pair.words.insert(word);
    }
  };
  for (std::size_t word = 0; word < known.size(); ++word) count(word, +1);
  while (alphabet.size() + merges_.size() < most && !pairs.empty()) {
    const auto best = std::max_element(pairs.begin(), pairs.end(), [](const auto& a, const auto& b) {
      return a.second.count < b.second.count;  // the first of equals, since the map is in order
    });
    if (best->second.count < 2) break;
    const Merge pair = best->first;
    const std::set<std::size_t> affected = std::move(best->second.words);
    merges_.push_back(pair);
    for (const std::size_t word : affected) {
      count(word, -1);
      apply(pair, known[word].pieces);
      count(word, +1);
    }
    pairs.erase(pair);
  }
  rank();
}

Bpe::Bpe(std::vector<Merge> merges) : merges_(std::move(merges)) { rank(); }

void Bpe::rank() {
  for (std::size_t i = 0; i < merges_.size(); ++i) ranks_.emplace(merges_[i], i);
}

std::vector<std::string> Bpe::split(const std::string& word) const {
  std::vector<std::string> pieces = characters(word);
  while (pieces.size() > 1) {
    std::size_t first = merges_.size();
    for (std::size_t i = 0; i + 1 < pieces.size(); ++i) {
      const auto found = ranks_.find({pieces[i], pieces[i + 1]});
      if (found != ranks_.end()) first = std::min(first, found->second);
    }
    if (first == merges_.size()) break;
    apply(merges_[first], pieces);
  }
  return pieces;
}

std::vector<std::string> Bpe::joined(const std::vector<std::string>& pieces) {
  std::vector<std::string> words;
  bool open = false;
  for (const std::string& piece : pieces) {
    if (!open) words.emplace_back();
    open = piece.ends_with(kMark);
    words.back() += open ? piece.substr(0, piece.size() - 2) : piece;
  }
  return words;
}

}  // namespace keel::lab::translate
