#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "lab/translate/vocabulary.h"

namespace keel::lab::translate {

// Byte-pair encoding (Sennrich): words as pieces, from characters up, the pair that is most frequent joined first. A
// piece that does not end its word is marked: "zwan@@ zig".
class Bpe {
 public:
  using Merge = std::pair<std::string, std::string>;

  // Learnt on words and how often each occurs, until characters and merges together are `pieces`, or no pair occurs
  // twice.
  Bpe(const Counts& words, std::size_t pieces);
  explicit Bpe(std::vector<Merge> merges);  // as merges() gives them

  std::vector<std::string> split(const std::string& word) const;
  const std::vector<Merge>& merges() const { return merges_; }

  // Words again, from marked pieces.
  static std::vector<std::string> joined(const std::vector<std::string>& pieces);

 private:
  void rank();

  std::vector<Merge> merges_;
  std::map<Merge, std::size_t> ranks_;
};

}  // namespace keel::lab::translate
