#pragma once

#include <cuda_runtime.h>

#include <cstddef>

namespace keel::cuda::hopper {

// Queues a kernel whose CTAs may start while the one before it ends; it waits for that by itself, where it must. In a
// graph, which may have anything before it, it starts as usual.
inline cudaError_t launch_early(const void* kernel, dim3 grid, int threads, int shared_bytes, void** arguments,
                                cudaStream_t stream) {
  cudaStreamCaptureStatus captured;
  if (const cudaError_t e = cudaStreamIsCapturing(stream, &captured)) return e;
  cudaLaunchAttribute early{};
  early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.dynamicSmemBytes = static_cast<std::size_t>(shared_bytes);
  config.stream = stream;
  config.attrs = &early;
  config.numAttrs = captured == cudaStreamCaptureStatusNone ? 1 : 0;
  return cudaLaunchKernelExC(&config, kernel, arguments);
}

}  // namespace keel::cuda::hopper
