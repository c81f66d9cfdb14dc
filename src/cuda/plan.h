#pragma once

#include <string>
#include <vector>

#include "cuda/table.h"
#include "plan/plan.h"

namespace keel::cuda {

// Which kernel, and how the call is cut: a function of the problem and the GPU. Gets a line for each choice where
// `reasons` is given.
ForwardWork plan_forward(const Problem& problem, const Gpu& gpu, std::vector<std::string>* reasons);
BackwardWork plan_backward(const BackwardProblem& problem, const Gpu& gpu, std::vector<std::string>* reasons);

}  // namespace keel::cuda
