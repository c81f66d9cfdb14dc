#pragma once

#include <string>
#include <utility>
#include <vector>

#include "keel/nn/random.h"
#include "lab/translate/pair.h"

// The grammar works in phrases: an English one and its German one, which may be in several parts ("fährt … ab"), and
// which English words each German word translates.
namespace keel::lab::translate {

struct GermanWord {
  std::string text;
  std::vector<std::size_t> from;  // positions in the English phrase
};
using GermanPart = std::vector<GermanWord>;

struct Phrase {
  std::vector<std::string> english;
  std::vector<GermanPart> german;  // parts in order
};

// Phrases in sequence in both languages, each German one in one part.
Phrase sequence(const std::vector<Phrase>& phrases);

// Which part of which phrase comes next in the German sentence.
struct Place {
  std::size_t phrase = 0, part = 0;
};
// The English phrases in their order, the German parts in the order of `places`.
Phrase arranged(const std::vector<Phrase>& phrases, const std::vector<Place>& places);

// One of a list, all equally likely.
template <class Items>
const auto& any_of(const Items& items, nn::Random& random) {
  return items[static_cast<std::size_t>(random.below(std::ssize(items)))];
}

// True with probability p.
inline bool perhaps(double p, nn::Random& random) { return random.uniform() < p; }

}  // namespace keel::lab::translate
