#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

namespace keel::lab::translate {

using Counts = std::map<std::string, std::int64_t>;

// Words and their numbers. 0 ends a sentence, 1 is an unknown word; the others by frequency.
class Vocabulary {
 public:
  // The most frequent of `counts`, so that there are at most `most` with the first two; of equals, the first by bytes.
  Vocabulary(const Counts& counts, std::size_t most);
  explicit Vocabulary(std::vector<std::string> words);  // as words() gives them

  std::int64_t size() const { return static_cast<std::int64_t>(words_.size()); }
  std::int64_t number(const std::string& word) const;
  const std::string& word(std::int64_t number) const { return words_.at(static_cast<std::size_t>(number)); }
  const std::vector<std::string>& words() const { return words_; }

 private:
  void index();

  std::vector<std::string> words_;
  std::unordered_map<std::string, std::int64_t> numbers_;
};

}  // namespace keel::lab::translate
