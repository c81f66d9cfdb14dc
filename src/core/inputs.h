#pragma once

#include "core/checker.h"
#include "core/problem.h"

namespace keel {

// Everything about a call except what it writes. Raises keel::Error, and fills in the problem's sizes.
void check_inputs(Checker& check, Problem& p);

// Once all is checked: see tidy().
void tidy_inputs(Problem& p);

}  // namespace keel
