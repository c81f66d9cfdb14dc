#pragma once

#include "core/problem.h"
#include "plan/plan.h"

namespace keel {

// Runs a forward call as its plan says: the problem is cut into tasks, each a call of the kernel.
void execute(const Problem& problem, const Plan& plan);

}  // namespace keel
