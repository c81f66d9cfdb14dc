#pragma once

#include <cstdint>

#include "core/call.h"
#include "cuda/hopper/key_tiles.h"
#include "cuda/hopper/shapes.h"
#include "cuda/hopper/tiles.h"
#include "cuda/plain_heads.h"
#include "cuda/plain_merge.h"
#include "keel/attention.h"

// What libkeel_cuda is to libkeel: one table of functions, found by name when the first array on a GPU comes. Both are
// of the same build; no type of CUDA's appears, so libkeel needs none of its headers.
namespace keel::cuda {

// A GPU of this machine.
struct Gpu {
  char name[256] = {};
  int major = 0, minor = 0;  // compute capability
  int processors = 0;        // streaming multiprocessors
  std::int64_t l2_bytes = 0, memory_bytes = 0;

  constexpr bool is_hopper() const { return major == 9 && minor == 0; }
};

// How a forward call is run: by the plain kernel, or cut up for a Hopper kernel.
struct ForwardWork {
  Call call;
  bool hopper = false;
  hopper::Choice choice{};
  hopper::Cut cut{};
  bool stores_tiles = false;  // out can be written by the copy engine
  int processors = 1;         // of the GPU
  HeadOutputs heads{};
};

// How a backward call is run: by the plain kernels; or by a Hopper kernel, and what that does not write by plain ones.
struct BackwardWork {
  BackwardCall call;
  Gradients as_given;  // as in BackwardProblem
  bool hopper = false;
  hopper::BackwardShape shape{};
  hopper::BackwardCut cut{};
  bool bf16 = true;                                     // else f16
  bool terms = false;                                   // scores need more than a mask by position
  hopper::BiasSums bias_sums = hopper::BiasSums::none;  // none: dbias, if asked for, by the plain kernel
  bool ordered = true;  // dq is summed in one order, and so has the same bits every time
  int processors = 1;   // of the GPU
};

// Functions return null, or what went wrong: text that is valid until the thread's next call. Work is queued on a
// stream of the device and not waited for.
struct Table {
  std::uint32_t size = 0;         // of this table
  const char* version = nullptr;  // of Keel
  const char* (*count_gpus)(int* count) = nullptr;
  const char* (*describe_gpu)(int device, Gpu* gpu) = nullptr;
  const char* (*forward)(int device, void* stream, const ForwardWork& work) = nullptr;
  const char* (*backward)(int device, void* stream, const BackwardWork& work) = nullptr;
  const char* (*merge)(int device, void* stream, const MergeCall& call, const MergePart* parts) = nullptr;
  std::int64_t (*forward_workspace)(const ForwardWork& work) = nullptr;  // bytes
  std::int64_t (*backward_workspace)(const BackwardWork& work) = nullptr;
};

using TableFunction = const Table* (*)();
constexpr const char* kTableFunction = "keel_cuda_table";

}  // namespace keel::cuda
