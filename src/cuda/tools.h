#pragma once

#include <cstdint>

#include "keel/dtype.h"

// What a benchmark needs of a GPU besides the calls of table.h: memory, a clock, and what the GPU can do at most. In
// libkeel_cuda too; no type of CUDA's appears. All work is queued on the default stream.
namespace keel::cuda {

// Functions return null, or what went wrong.
struct Tools {
  std::uint32_t size = 0;  // of this structure
  const char* (*allocate)(int device, std::int64_t bytes, void** memory) = nullptr;
  void (*release)(int device, void* memory) = nullptr;
  // Normally distributed numbers; for bool, true with a probability of 7/8.
  const char* (*fill)(int device, void* memory, DType dtype, std::int64_t count, std::uint64_t seed) = nullptr;
  const char* (*copy)(int device, void* to, const void* from, std::int64_t bytes) = nullptr;
  // Matrix products without memory traffic, for a millisecond or so; *flops is 0 where the GPU is no Hopper.
  const char* (*multiply)(int device, double* flops) = nullptr;
  // The seconds that the GPU takes for what `work` queues.
  const char* (*time)(int device, void (*work)(void* data), void* data, double* seconds) = nullptr;
};

using ToolsFunction = const Tools* (*)();
constexpr const char* kToolsFunction = "keel_cuda_tools";

}  // namespace keel::cuda
