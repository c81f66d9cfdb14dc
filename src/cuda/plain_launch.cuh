#pragma once

#include <algorithm>
#include <cstdint>

#include "cuda/lanes.h"

// Work in items on a GPU.
namespace keel::cuda {

inline constexpr int kThreads = 128;  // per block

template <class Work>
__global__ void run_together(const __grid_constant__ Work work, std::int64_t items) {
  const std::int64_t groups = std::int64_t{gridDim.x} * (kThreads / Warp::kCount);
  std::int64_t item = (std::int64_t{blockIdx.x} * kThreads + threadIdx.x) / Warp::kCount;
  for (; item < items; item += groups) work(item, Warp{});
}

template <class Work>
__global__ void run_alone(const __grid_constant__ Work work, std::int64_t items) {
  std::int64_t item = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  for (; item < items; item += std::int64_t{gridDim.x} * kThreads) work(item, OneLane{});
}

// Launches each work on a stream, one after the other, until one fails.
class Launcher {
 public:
  explicit Launcher(cudaStream_t stream) : stream_(stream) {}

  template <class Work>
  void together(std::int64_t items, const Work& work) {
    launch(items, Warp::kCount, [&](unsigned blocks) { run_together<<<blocks, kThreads, 0, stream_>>>(work, items); });
  }
  template <class Work>
  void alone(std::int64_t items, const Work& work) {
    launch(items, 1, [&](unsigned blocks) { run_alone<<<blocks, kThreads, 0, stream_>>>(work, items); });
  }
  cudaError_t error() const { return error_; }

 private:
  template <class Launch>
  void launch(std::int64_t items, int lanes, const Launch& queue) {
    constexpr std::int64_t kMostBlocks = 1 << 16;  // enough to fill any GPU many times over
    if (items == 0 || error_ != cudaSuccess) return;
    const std::int64_t per_block = kThreads / lanes;
    queue(static_cast<unsigned>(std::min(kMostBlocks, (items - 1) / per_block + 1)));
    error_ = cudaGetLastError();
  }

  cudaStream_t stream_;
  cudaError_t error_ = cudaSuccess;
};

}  // namespace keel::cuda
