#pragma once

#include "lab/translate/grammar/phrase.h"

namespace keel::lab::translate {

// "the third of may at half past three", "am dritten mai um halb vier"
Phrase moment(nn::Random& random);

// A whole clause of the domain: something happens at a time, something costs, someone buys, sells, orders.
Phrase clause(nn::Random& random);

}  // namespace keel::lab::translate
