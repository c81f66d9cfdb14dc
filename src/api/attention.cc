#include "keel/attention.h"

#include <new>
#include <vector>

#include "api/backends.h"
#include "core/problem.h"
#include "plan/plan.h"
#include "runtime/parallel.h"

namespace keel {
namespace {

Error no_memory(const char* operation) {
  return {ErrorCode::out_of_memory,
          std::string("[") + operation + "] expected memory for the workspace, got none from the system"};
}

// Created when the library is loaded, as a message needs memory too. Throwing one needs none: copies share the text.
const Error kNoMemoryForAttention = no_memory("attention"), kNoMemoryForBackward = no_memory("attention_backward"),
            kNoMemoryForMerge = no_memory("merge"), kNoMemoryForJvp = no_memory("attention_jvp"),
            kNoMemoryForDouble = no_memory("attention_double_backward");

// Runs `work`; a failed allocation becomes `error`.
template <class Work>
auto run(const Error& error, Work work) {
  try {
    return work();
  } catch (const std::bad_alloc&) {
    throw error;
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
  run(kNoMemoryForAttention, [&] {
    const Problem problem = make_problem(q, k, v, out, options, outputs);
    make_plan(problem, backends(), {.resources = resources()}).execute();
  });
}

void attention_backward(const BackwardInputs& inputs, const Gradients& gradients, const Options& options) {
  run(kNoMemoryForBackward, [&] {
    const BackwardProblem problem = make_backward_problem(inputs, gradients, options);
    make_plan(problem, backends(), {.resources = resources()}).execute();
  });
}

void attention_jvp(const JvpInputs& inputs, const Tangents& tangents, const JvpOutputs& outputs,
                   const Options& options) {
  run(kNoMemoryForJvp, [&] {
    const TangentProblem problem = make_jvp_problem(inputs, tangents, outputs, options);
    make_plan(problem, backends(), {.resources = resources()}).execute();
  });
}

void attention_double_backward(const BackwardInputs& inputs, const Tangents& tangents, const DoubleGradients& gradients,
                               const Options& options) {
  run(kNoMemoryForDouble, [&] {
    const TangentProblem problem = make_double_backward_problem(inputs, tangents, gradients, options);
    make_plan(problem, backends(), {.resources = resources()}).execute();
  });
}

void merge(std::span<const Partial> parts, const MutableTensorView& out, const Outputs& outputs, int threads,
           void* stream) {
  run(kNoMemoryForMerge, [&] {
    const MergeProblem problem = make_merge_problem(parts, out, outputs, threads, stream);
    make_plan(problem, backends(), {.resources = resources()}).execute();
  });
}

std::string explain(const TensorView& q, const TensorView& k, const TensorView& v, const MutableTensorView& out,
                    const Options& options, const Outputs& outputs) {
  return run(kNoMemoryForAttention, [&]() -> std::string {
    const Problem problem = make_problem(q, k, v, out, options, outputs, Pointers::ignored);
    if (!problem.has_rows()) return "nothing to compute: there are no rows\n";
    return explain_problem(problem);
  });
}

std::string explain(const BackwardInputs& inputs, const Gradients& gradients, const Options& options) {
  return run(kNoMemoryForBackward, [&]() -> std::string {
    const BackwardProblem problem = make_backward_problem(inputs, gradients, options, Pointers::ignored);
    if (!problem.forward.has_pairs()) return "nothing to compute: no query has a key\n";
    return explain_problem(problem);
  });
}

std::string explain(const JvpInputs& inputs, const Tangents& tangents, const JvpOutputs& outputs,
                    const Options& options) {
  return run(kNoMemoryForJvp, [&]() -> std::string {
    const TangentProblem problem = make_jvp_problem(inputs, tangents, outputs, options, Pointers::ignored);
    if (!problem.backward.forward.has_pairs()) return "nothing to compute: no query has a key\n";
    return explain_problem(problem);
  });
}

std::string explain(const BackwardInputs& inputs, const Tangents& tangents, const DoubleGradients& gradients,
                    const Options& options) {
  return run(kNoMemoryForDouble, [&]() -> std::string {
    const TangentProblem problem =
        make_double_backward_problem(inputs, tangents, gradients, options, Pointers::ignored);
    if (!problem.backward.forward.has_pairs()) return "nothing to compute: no query has a key\n";
    return explain_problem(problem);
  });
}

const char* version() noexcept { return KEEL_VERSION; }

}  // namespace keel
