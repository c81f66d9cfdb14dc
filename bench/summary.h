#pragma once

#include <span>

namespace keel::bench {

// Repeats of one number. Quartiles are interpolated between the two nearest values.
struct Summary {
  double median = 0, lower = 0, upper = 0;
  double least = 0, greatest = 0;
};

// Of at least one value.
Summary summary_of(std::span<const double> values);

}  // namespace keel::bench
