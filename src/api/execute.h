#pragma once

#include "core/problem.h"
#include "plan/plan.h"

namespace keel {

// Runs a call as its plan says: the problem is cut into tasks, each a call of the kernel.
void execute(const Problem& problem, const Plan& plan);
void execute(const BackwardProblem& problem, const Plan& plan);

// execute() for the streaming backward kernel.
void run_streaming_backward(const BackwardProblem& problem, const Plan& plan);

}  // namespace keel
