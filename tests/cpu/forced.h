#pragma once

#include <string>
#include <vector>

#include "api/backends.h"
#include "conformance/compare.h"
#include "conformance/slices.h"
#include "core/problem.h"
#include "plan/plan.h"
#include "runtime/parallel.h"

namespace keel {

// attention() with a plan of the test's choosing.
inline void run_forced(const TensorView& q, const TensorView& k, const TensorView& v, const MutableTensorView& out,
                       const Options& options, const Outputs& outputs, const Forced& forced) {
  const Problem problem = make_problem(q, k, v, out, options, outputs);
  make_plan(problem, backends(), {.resources = resources(), .forced = forced}).execute();
}

inline conformance::Forward forced_forward(const Forced& forced) {
  return
      [forced](const TensorView& q, const TensorView& k, const TensorView& v, const MutableTensorView& out,
               const Options& options, const Outputs& outputs) { run_forced(q, k, v, out, options, outputs, forced); };
}

// attention_backward() with a plan of the test's choosing.
inline void run_forced(const BackwardInputs& inputs, const Gradients& gradients, const Options& options,
                       const Forced& forced) {
  const BackwardProblem problem = make_backward_problem(inputs, gradients, options);
  make_plan(problem, backends(), {.resources = resources(), .forced = forced}).execute();
}

inline conformance::Backward forced_backward(const Forced& forced) {
  return [forced](const BackwardInputs& inputs, const Gradients& gradients, const Options& options) {
    run_forced(inputs, gradients, options, forced);
  };
}

// merge() with a plan of the test's choosing.
inline void run_forced(const MergeProblem& problem, const Forced& forced) {
  make_plan(problem, backends(), {.resources = resources(), .forced = forced}).execute();
}

inline conformance::Merge forced_merge(const Forced& forced) {
  return [forced](std::span<const Partial> parts, const MutableTensorView& out, const Outputs& outputs) {
    run_forced(make_merge_problem(parts, out, outputs, 0), forced);
  };
}

}  // namespace keel
