#pragma once

#include <string>
#include <vector>

#include "lab/record.h"

namespace keel::lab {

// What the scaling does, in one picture (SVG): the spread of the scores, the weights of 16 rows, the loss while
// training. Empty if the run has not measured that.
std::string picture(const std::vector<Record>& records);

}  // namespace keel::lab
