// A libkeel_cuda whose GPU is the CPU: it runs the plain kernels on the host, at once, over memory that is the host's.
// With it (KEEL_CUDA_LIBRARY) the tests of the Python package follow calls on CUDA arrays to their end without a GPU.
#include "cuda/host_run.h"
#include "cuda/table.h"

namespace keel::cuda {
namespace {

void* last_stream = nullptr;

const char* count_gpus(int* count) {
  *count = 1;
  return nullptr;
}

const char* describe_gpu(int device, Gpu* gpu) {
  if (device != 0) return "invalid device ordinal";
  *gpu = {.name = "the host", .major = 8, .minor = 0, .processors = 1, .l2_bytes = 1 << 20, .memory_bytes = 1 << 30};
  return nullptr;
}

const char* forward(int, void* stream, const ForwardWork& work) {
  last_stream = stream;
  const auto memory = workspace_of(forward_workspace(work.call, work.heads));
  WorkspaceCursor workspace(memory.get());
  HostRun<1> run;
  with_element(work.call.dtype,
               [&](auto element) { forward_steps<decltype(element)>(work.call, work.heads, workspace, run); });
  return nullptr;
}

const char* backward(int, void* stream, const BackwardWork& work) {
  last_stream = stream;
  const BackwardCall& call = work.call;
  const auto memory = workspace_of(backward_workspace(call));
  WorkspaceCursor workspace(memory.get());
  HostRun<1> run;
  with_element(call.forward.dtype,
               [&](auto element) { backward_steps<decltype(element)>(call, work.as_given, workspace, run); });
  return nullptr;
}

const char* merge(int, void* stream, const MergeCall& call, const MergePart* parts) {
  last_stream = stream;
  const auto memory = workspace_of(merge_workspace(call));
  WorkspaceCursor workspace(memory.get());
  HostRun<1> run;
  merge_steps(call, parts, workspace, run);
  return nullptr;
}

constexpr Table kTable{
    .size = sizeof(Table),
    .version = KEEL_VERSION,
    .count_gpus = count_gpus,
    .describe_gpu = describe_gpu,
    .forward = forward,
    .backward = backward,
    .merge = merge,
    .forward_workspace =
        [](const ForwardWork& work) { return static_cast<std::int64_t>(forward_workspace(work.call, work.heads)); },
    .backward_workspace =
        [](const BackwardWork& work) { return static_cast<std::int64_t>(backward_workspace(work.call)); }};

}  // namespace
}  // namespace keel::cuda

extern "C" __attribute__((visibility("default"))) const keel::cuda::Table* keel_cuda_table() {
  return &keel::cuda::kTable;
}

// The stream of the last call.
extern "C" __attribute__((visibility("default"))) void* keel_cuda_host_stream() { return keel::cuda::last_stream; }
