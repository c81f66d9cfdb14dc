#pragma once

#include <vector>

#include "conformance/case.h"

namespace keel::conformance {

// The one list of cases: those written by hand, then all_pairs(). Names are unique.
const std::vector<Case>& table();

// The case of that name; raises std::out_of_range.
const Case& case_named(const std::string& name);

}  // namespace keel::conformance
