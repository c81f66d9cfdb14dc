#pragma once

#include "lab/translate/grammar/phrase.h"

namespace keel::lab::translate {

// "on monday the third of may", "am montag dem dritten mai"; or without the weekday, or the weekday alone.
Phrase date(nn::Random& random);
// "the third of may", "am dritten mai": a date that is not part of a sentence.
Phrase bare_date(nn::Random& random);
// "at half past three", "um halb vier", perhaps with the part of the day.
Phrase clock_time(nn::Random& random);

}  // namespace keel::lab::translate
