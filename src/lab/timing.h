#pragma once

#include <functional>
#include <span>
#include <string>

#include "lab/result.h"

namespace keel::lab {

// Seconds of one call, the least of some batches; a long one is made once.
double time_of(const std::function<void()>& call);

// The median of rounds, which a disturbance of the machine moves little, under a key; its spread as a standard
// deviation, from the quartiles. Returns the median.
double robust(Findings& times, const std::string& key, std::span<const double> rounds);

}  // namespace keel::lab
