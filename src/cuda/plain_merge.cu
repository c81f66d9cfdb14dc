#include "cuda/plain.h"
#include "cuda/plain_launch.cuh"
#include "cuda/plain_steps.h"

namespace keel::cuda {

std::size_t plain_merge_workspace(const MergeCall& call) { return merge_workspace(call); }

cudaError_t launch_plain_merge(const MergeCall& call, const MergePart* parts, cudaStream_t stream, void* workspace) {
  Launcher run(stream);
  WorkspaceCursor memory(workspace);
  merge_steps(call, parts, memory, run);
  return run.error();
}

}  // namespace keel::cuda
