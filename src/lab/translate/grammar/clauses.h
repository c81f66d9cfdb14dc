#pragma once

#include "lab/translate/grammar/phrase.h"

namespace keel::lab::translate {

// A whole clause of the domain: something happens at a time, something costs, somebody buys, sells, orders.
Phrase clause(nn::Random& random);

}  // namespace keel::lab::translate
