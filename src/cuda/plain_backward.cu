#include "cuda/plain.h"
#include "cuda/plain_launch.cuh"
#include "cuda/plain_steps.h"

namespace keel::cuda {

std::size_t plain_backward_workspace(const BackwardCall& call) { return backward_workspace(call); }

cudaError_t launch_plain_backward(const BackwardCall& call, const Gradients& as_given, cudaStream_t stream,
                                  void* workspace) {
  Launcher run(stream);
  WorkspaceCursor memory(workspace);
  with_element(call.forward.dtype,
               [&](auto element) { backward_steps<decltype(element)>(call, as_given, memory, run); });
  return run.error();
}

}  // namespace keel::cuda
