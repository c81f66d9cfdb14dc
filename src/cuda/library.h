#pragma once

#include <string>

#include "cuda/table.h"
#include "cuda/tools.h"

namespace keel::cuda {

// libkeel_cuda, opened on first use: from beside libkeel, or where the system looks for libraries, or the file that the
// environment's KEEL_CUDA_LIBRARY names.
struct Library {
  const Table* table = nullptr;
  const Tools* tools = nullptr;  // null where the library has none of this version
  std::string reason;            // where there is none: why
};
const Library& library();

// The GPU of that number, or why it cannot be used.
struct GpuOrReason {
  Gpu gpu;
  std::string reason;  // empty: there it is
};
const GpuOrReason& gpu(int index);

// How many GPUs there are; 0 where none can be used.
int count_gpus();

}  // namespace keel::cuda
