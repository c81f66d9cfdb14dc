#pragma once

#include <memory>
#include <span>
#include <vector>

#include "core/problem.h"
#include "cuda/lockstep.h"
#include "cuda/merge_call.h"
#include "cuda/plain_steps.h"
#include "keel/attention.h"

// The plain kernels on the CPU: the same work in the same order, item by item.
namespace keel::cuda {

template <int kLanes>
struct HostRun {
  template <class Work>
  void together(std::int64_t items, const Work& work) {
    if constexpr (kLanes == 1) {
      alone(items, work);
    } else {
      Fibers<kLanes> fibers;
      fibers.run([&](int lane) {
        const Lockstep<kLanes> lanes(fibers, lane);
        for (std::int64_t item = 0; item < items; ++item) work(item, lanes);
      });
    }
  }
  template <class Work>
  void alone(std::int64_t items, const Work& work) {
    for (std::int64_t item = 0; item < items; ++item) work(item, OneLane{});
  }
};

// Memory of exactly that size, and none where none is needed.
inline std::unique_ptr<std::byte[]> workspace_of(std::size_t bytes) {
  return bytes == 0 ? nullptr : std::make_unique<std::byte[]>(bytes);
}

template <int kLanes>
void plain_attention(const TensorView& q, const TensorView& k, const TensorView& v, const MutableTensorView& out,
                     const Options& options, const Outputs& outputs) {
  const Call call(make_problem(q, k, v, out, options, outputs));
  const HeadOutputs heads = {outputs.heads.data(), outputs.saturation_threshold};
  const auto memory = workspace_of(forward_workspace(call, heads));
  WorkspaceCursor workspace(memory.get());
  HostRun<kLanes> run;
  with_element(call.dtype, [&](auto element) { forward_steps<decltype(element)>(call, heads, workspace, run); });
}

template <int kLanes>
void plain_attention_backward(const BackwardInputs& inputs, const Gradients& gradients, const Options& options) {
  const BackwardProblem problem = make_backward_problem(inputs, gradients, options);
  const BackwardCall call(problem);
  const auto memory = workspace_of(backward_workspace(call));
  WorkspaceCursor workspace(memory.get());
  HostRun<kLanes> run;
  with_element(call.forward.dtype,
               [&](auto element) { backward_steps<decltype(element)>(call, problem.as_given, workspace, run); });
}

template <int kLanes>
void plain_merge(const MergeProblem& problem) {
  const MergeCall call = merge_call(problem);
  const std::vector<MergePart> parts = merge_parts(problem);
  const auto memory = workspace_of(merge_workspace(call));
  WorkspaceCursor workspace(memory.get());
  HostRun<kLanes> run;
  merge_steps(call, parts.data(), workspace, run);
}

template <int kLanes>
void plain_merge(std::span<const Partial> parts, const MutableTensorView& out, const Outputs& outputs) {
  plain_merge<kLanes>(make_merge_problem(parts, out, outputs, 0));
}

}  // namespace keel::cuda
