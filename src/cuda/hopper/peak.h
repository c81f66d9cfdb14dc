#pragma once

#include <cuda_runtime_api.h>

namespace keel::cuda::hopper {

// Queues matrix products of numbers that lie in shared memory, on every multiprocessor: what attention cannot exceed.
cudaError_t launch_products(int processors, double* flops);

}  // namespace keel::cuda::hopper
