#include "cuda/plain.h"
#include "cuda/plain_launch.cuh"
#include "cuda/plain_steps.h"

namespace keel::cuda {

std::size_t plain_forward_workspace(const Call& call, const HeadOutputs& heads) {
  return forward_workspace(call, heads);
}

cudaError_t launch_plain_forward(const Call& call, cudaStream_t stream, void* workspace, const HeadOutputs& heads) {
  Launcher run(stream);
  WorkspaceCursor memory(workspace);
  with_element(call.dtype, [&](auto element) { forward_steps<decltype(element)>(call, heads, memory, run); });
  return run.error();
}

std::size_t plain_key_sums_workspace(const Call& call) { return key_sums_workspace(call); }

cudaError_t launch_plain_key_sums(const Call& call, cudaStream_t stream, void* workspace) {
  Launcher run(stream);
  WorkspaceCursor memory(workspace);
  with_element(call.dtype, [&](auto element) { key_sums_steps<decltype(element)>(call, memory, run); });
  return run.error();
}

cudaError_t launch_plain_scores(const Call& call, cudaStream_t stream) {
  Launcher run(stream);
  with_element(call.dtype, [&](auto element) { score_steps<decltype(element)>(call, run); });
  return run.error();
}

cudaError_t launch_plain_heads(const Call& call, cudaStream_t stream, const HeadOutputs& heads) {
  Launcher run(stream);
  head_steps(call, heads, run);
  return run.error();
}

}  // namespace keel::cuda
