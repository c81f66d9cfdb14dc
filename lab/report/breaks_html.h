#pragma once

#include <string>
#include <vector>

#include "lab/record.h"

namespace keel::lab {

// Breaks to find, from what the experiment `broken` recorded: for each what it shows, then guesses and hints, then the
// line, the fix, and both versions side by side. breaks.js shows one part after the other. Empty if it was not run.
std::string breaks_html(const std::vector<Record>& records);

}  // namespace keel::lab
