#include "keel/attention.h"

#include <new>
#include <vector>

#include "api/backends.h"
#include "core/problem.h"
#include "plan/plan.h"
#include "runtime/parallel.h"

namespace keel {
namespace {

// Runs `work`; memory that cannot be had becomes keel::Error.
template <class Work>
void run(const char* operation, Work work) {
  try {
    work();
  } catch (const std::bad_alloc&) {
    throw Error(ErrorCode::out_of_memory,
                std::string("[") + operation + "] expected memory for the workspace, got none from the system");
  }
}

template <class AnyProblem>
std::string explain_problem(const AnyProblem& problem) {
  std::vector<std::string> reasons;
  const Plan plan = make_plan(problem, backends(), {.resources = resources(), .reasons = &reasons});
  return describe(plan, reasons);
}

}  // namespace

void attention(const TensorView& q, const TensorView& k, const TensorView& v, const MutableTensorView& out,
               const Options& options, const Outputs& outputs) {
  run("attention", [&] {
    const Problem problem = make_problem(q, k, v, out, options, outputs);
    make_plan(problem, backends(), {.resources = resources()}).call->execute();
  });
}

void attention_backward(const BackwardInputs& inputs, const Gradients& gradients, const Options& options) {
  run("attention_backward", [&] {
    const BackwardProblem problem = make_backward_problem(inputs, gradients, options);
    make_plan(problem, backends(), {.resources = resources()}).call->execute();
  });
}

void merge(std::span<const Partial> parts, const MutableTensorView& out, const Outputs& outputs, int threads) {
  run("merge", [&] {
    const MergeProblem problem = make_merge_problem(parts, out, outputs, threads);
    make_plan(problem, backends(), {.resources = resources()}).call->execute();
  });
}

std::string explain(const TensorView& q, const TensorView& k, const TensorView& v, const MutableTensorView& out,
                    const Options& options, const Outputs& outputs) {
  const Problem problem = make_problem(q, k, v, out, options, outputs, Pointers::ignored);
  if (!problem.has_rows()) return "nothing to compute: there are no rows\n";
  return explain_problem(problem);
}

std::string explain(const BackwardInputs& inputs, const Gradients& gradients, const Options& options) {
  const BackwardProblem problem = make_backward_problem(inputs, gradients, options, Pointers::ignored);
  if (!problem.forward.has_pairs()) return "nothing to compute: no query has a key\n";
  return explain_problem(problem);
}

const char* version() { return KEEL_VERSION; }

}  // namespace keel
