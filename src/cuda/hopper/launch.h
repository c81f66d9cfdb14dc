#pragma once

#include <cuda_runtime.h>

#include "cuda/table.h"

namespace keel::cuda::hopper {

// Bytes of workspace that launch_forward() takes.
std::int64_t forward_workspace(const ForwardWork& work);

// Queues a forward call, whose lists lie on the device, on the current device. Null, or what went wrong.
const char* launch_forward(const ForwardWork& work, void* workspace, cudaStream_t stream);

// The same of a backward call: dq, dk and dv.
std::int64_t backward_workspace(const BackwardWork& work);
const char* launch_backward(const BackwardWork& work, void* workspace, cudaStream_t stream);

}  // namespace keel::cuda::hopper
