#include "keel/attention.h"

#include <algorithm>
#include <array>
#include <new>
#include <vector>

#include "api/execute.h"
#include "api/heads.h"
#include "api/zero.h"
#include "core/problem.h"
#include "plan/merge_plan.h"
#include "plan/plan.h"
#include "runtime/machine.h"

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

}  // namespace

void attention(const TensorView& q, const TensorView& k, const TensorView& v, const MutableTensorView& out,
               const Options& options, const Outputs& outputs) {
  run("attention", [&] {
    Problem problem = make_problem(q, k, v, out, options, outputs);
    HeadRows rows(problem);  // gives the problem the row statistics that the heads' are made of
    if (problem.has_rows()) execute(problem, make_plan(problem, machine()));
    rows.reduce(problem);
  });
}

void attention_backward(const BackwardInputs& inputs, const Gradients& gradients, const Options& options) {
  run("attention_backward", [&] {
    const BackwardProblem problem = make_backward_problem(inputs, gradients, options);
    if (!problem.forward.has_pairs()) {  // sums over nothing; those over a dimension of size 0 have memory still
      zero(gradients.dq);
      zero(gradients.dk);
      zero(gradients.dv);
      zero(gradients.dbias);
      zero(gradients.dscale);
      zero(gradients.dsinks);
      return;
    }
    execute(problem, make_plan(problem, machine()));
  });
}

void merge(std::span<const Partial> parts, const MutableTensorView& out, const Outputs& outputs, int threads) {
  run("merge", [&] {
    const MergeProblem problem = make_merge_problem(parts, out, outputs, threads);
    cpu::run_merge(merge_call(problem), problem.rows, plan_merge(problem, machine()));
  });
}

std::string explain(const TensorView& q, const TensorView& k, const TensorView& v, const MutableTensorView& out,
                    const Options& options, const Outputs& outputs) {
  const Problem problem = make_problem(q, k, v, out, options, outputs, Pointers::ignored);
  if (!problem.has_rows()) return "nothing to compute: there are no rows\n";
  std::vector<std::string> reasons;
  const Plan plan = make_plan(problem, machine(), {}, &reasons);
  return describe(plan, reasons);
}

const char* version() { return KEEL_VERSION; }

}  // namespace keel
