#pragma once

#include <functional>
#include <string>
#include <vector>

#include "conformance/case.h"

namespace keel::conformance {

// One choice for a feature, as a change to a case. Sizes come first in the list of factors; what depends on them
// (lengths, offsets) is made from the case's sizes.
struct Level {
  std::string name;
  std::function<void(Case&)> apply;
};

// A feature: exactly one of its levels holds in a case.
struct Factor {
  std::string name;
  std::vector<Level> levels;
};

const std::vector<Factor>& factors();

// "mask=by_key"
std::string label(const Factor& factor, const Level& level);

// Cases in which each two levels of different factors meet at least once.
std::vector<Case> all_pairs();

}  // namespace keel::conformance
