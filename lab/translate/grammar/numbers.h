#pragma once

#include "lab/translate/grammar/phrase.h"

namespace keel::lab::translate {

// 1 to 99. `one` is the German word for 1 where it stands alone: ein, eine, einen, eins.
Phrase cardinal(int n, const char* one);

// 1st to 31st, German in the form that follows "am" and "dem": "twenty first", "ein und zwanzig sten".
Phrase ordinal(int n);

}  // namespace keel::lab::translate
