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

Error no_memory(const char* operation) {
  return {ErrorCode::out_of_memory,
          std::string("[") + operation + "] expected memory for the workspace, got none from the system"};
}

// Made when the library is loaded, as a message needs memory too. Throwing one takes none: copies share the text.
const Error no_memory_for_attention = no_memory("attention"), no_memory_for_backward = no_memory("attention_backward"),
            no_memory_for_merge = no_memory("merge");

// Runs `work`; memory that cannot be had becomes `error`.
template <class Work>
auto run(const Error& error, Work work) {
  try {
    return work();
  } catch (const std::bad_alloc&) {
    throw error;
  }
}

}  // namespace

void attention(const TensorView& q, const TensorView& k, const TensorView& v, const MutableTensorView& out,
               const Options& options, const Outputs& outputs) {
  run(no_memory_for_attention, [&] {
    Problem problem = make_problem(q, k, v, out, options, outputs);
    HeadRows rows(problem);  // gives the problem the row statistics that the heads' are made of
    if (problem.has_rows()) execute(problem, make_plan(problem, machine()));
    rows.reduce(problem);
  });
}

void attention_backward(const BackwardInputs& inputs, const Gradients& gradients, const Options& options) {
  run(no_memory_for_backward, [&] {
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
  run(no_memory_for_merge, [&] {
    const MergeProblem problem = make_merge_problem(parts, out, outputs, threads);
    cpu::run_merge(merge_call(problem), problem.rows, plan_merge(problem, machine()));
  });
}

std::string explain(const TensorView& q, const TensorView& k, const TensorView& v, const MutableTensorView& out,
                    const Options& options, const Outputs& outputs) {
  return run(no_memory_for_attention, [&]() -> std::string {
    const Problem problem = make_problem(q, k, v, out, options, outputs, Pointers::ignored);
    if (!problem.has_rows()) return "nothing to compute: there are no rows\n";
    std::vector<std::string> reasons;
    const Plan plan = make_plan(problem, machine(), {}, &reasons);
    return describe(plan, reasons);
  });
}

const char* version() { return KEEL_VERSION; }

}  // namespace keel
