#pragma once

#include <string>
#include <vector>

#include "core/problem.h"
#include "runtime/machine.h"

namespace keel {

enum class Kernel { reference };

// How a call is served, and why. Made by make_plan() from the problem and the machine alone.
struct Plan {
  Kernel kernel = Kernel::reference;
  int threads = 1;
  std::int64_t workspace_bytes = 0;
  std::vector<std::string> reasons;

  std::string describe() const;
};

Plan make_plan(const Problem& problem, const Machine& machine);
Plan make_plan(const BackwardProblem& problem, const Machine& machine);

}  // namespace keel
