#pragma once

#include "lab/translate/grammar/phrase.h"

namespace keel::lab::translate {

enum class Case { nominative, accusative };

// "three small lamps", "one bottle of milk"
struct Things {
  Phrase words;
  bool several = false;
};
Things things(Case grammatical_case, nn::Random& random);

// "four euros and fifty cents", in the accusative: what something costs.
Phrase price(nn::Random& random);

}  // namespace keel::lab::translate
