#include "plan/plan.h"

#include "core/message.h"

namespace keel {
namespace {

constexpr const char* name_of(Kernel kernel) {
  switch (kernel) {
    case Kernel::reference:
      return "reference (float64 oracle)";
  }
  return "unknown";
}

}  // namespace

std::string Plan::describe() const {
  std::string text =
      concat("kernel     ", name_of(kernel), "\nthreads    ", threads, "\nworkspace  ", workspace_bytes, " bytes\n");
  for (const std::string& reason : reasons) text += "because    " + reason + "\n";
  return text;
}

Plan make_plan(const Problem& problem, const Machine&) {
  const std::int64_t row = problem.n_k * static_cast<std::int64_t>(5 * sizeof(double) + 1);
  const std::int64_t heads = (problem.n_q * problem.d_k + problem.n_k * (problem.d_k + problem.d_v)) * 8;
  return {.kernel = Kernel::reference,
          .threads = 1,
          .workspace_bytes = row + heads,
          .reasons = {"no fast kernel serves the forward pass yet"}};
}

Plan make_plan(const BackwardProblem& problem, const Machine& machine) {
  Plan plan = make_plan(problem.forward, machine);
  plan.reasons = {"no fast kernel serves the backward pass yet"};
  return plan;
}

}  // namespace keel
