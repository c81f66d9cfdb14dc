// The table of libkeel_cuda: devices, workspace, and which launcher runs a call.
#include <cuda_runtime.h>

#include <array>
#include <cstdio>
#include <mutex>

#include "cuda/hopper/launch.h"
#include "cuda/plain.h"
#include "cuda/plain_steps.h"
#include "cuda/table.h"

namespace keel::cuda {
namespace {

constexpr int kMostGpus = 64;

const char* text_of(cudaError_t error) { return error == cudaSuccess ? nullptr : cudaGetErrorString(error); }

// Makes a device current, and the one that was before so again.
class Current {
 public:
  explicit Current(int device) {
    error_ = cudaGetDevice(&before_);
    if (error_ == cudaSuccess && before_ != device) {
      error_ = cudaSetDevice(device);
      changed_ = error_ == cudaSuccess;
    }
  }
  Current(const Current&) = delete;
  ~Current() {
    if (changed_) cudaSetDevice(before_);
  }
  cudaError_t error() const { return error_; }

 private:
  int before_ = 0;
  bool changed_ = false;
  cudaError_t error_;
};

// The device's own pool of workspace, which keeps what it has between calls: the default pool would give it back to the
// system whenever somebody waits for the device.
cudaError_t workspace_pool(int device, cudaMemPool_t& pool) {
  static std::array<cudaMemPool_t, kMostGpus> pools{};
  static std::mutex mutex;
  if (device < 0 || device >= kMostGpus) return cudaErrorInvalidDevice;
  const std::lock_guard<std::mutex> lock(mutex);
  cudaMemPool_t& own = pools[static_cast<std::size_t>(device)];
  if (own == nullptr) {
    cudaMemPoolProps properties{};
    properties.allocType = cudaMemAllocationTypePinned;
    properties.location = {cudaMemLocationTypeDevice, device};
    if (const cudaError_t e = cudaMemPoolCreate(&own, &properties)) return e;
    std::uint64_t all = UINT64_MAX;
    if (const cudaError_t e = cudaMemPoolSetAttribute(own, cudaMemPoolAttrReleaseThreshold, &all)) return e;
  }
  pool = own;
  return cudaSuccess;
}

// Workspace of a call, given back when the stream comes to it.
class Workspace {
 public:
  Workspace(int device, std::int64_t bytes, cudaStream_t stream) : stream_(stream) {
    cudaMemPool_t pool = nullptr;
    error_ = bytes > 0 ? workspace_pool(device, pool) : cudaSuccess;
    if (error_ == cudaSuccess && bytes > 0) {
      error_ = cudaMallocFromPoolAsync(&data_, static_cast<std::size_t>(bytes), pool, stream);
    }
  }
  Workspace(const Workspace&) = delete;
  ~Workspace() {
    if (data_ != nullptr) cudaFreeAsync(data_, stream_);
  }
  cudaError_t error() const { return error_; }
  char* data() const { return static_cast<char*>(data_); }

 private:
  void* data_ = nullptr;
  cudaStream_t stream_;
  cudaError_t error_;
};

// ---- Lists that lie on the host travel as arguments of a kernel: nothing waits, and a graph captures their values.
constexpr int kListPart = 448;
struct ListPart {
  std::int64_t values[kListPart];
};
__global__ void write_list(const __grid_constant__ ListPart part, std::int64_t* to, int count) {
  for (int i = threadIdx.x; i < count; i += blockDim.x) to[i] = part.values[i];
}

std::int64_t list_bytes(const Sequences& s) {
  std::int64_t bytes = 0;
  for (const ListView* list : {&s.q_lengths, &s.k_lengths, &s.q_offsets, &s.k_offsets}) {
    if (list->device.kind == DeviceKind::cpu) bytes += 8 * list->size();
  }
  return (bytes + 255) / 256 * 256;
}

void send_lists(Sequences& s, void* workspace, cudaStream_t stream) {
  auto* to = static_cast<std::int64_t*>(workspace);
  for (ListView* list : {&s.q_lengths, &s.k_lengths, &s.q_offsets, &s.k_offsets}) {
    if (list->device.kind != DeviceKind::cpu || list->empty()) continue;
    for (std::int64_t first = 0; first < list->size(); first += kListPart) {
      ListPart part{};
      const int count = static_cast<int>(std::min<std::int64_t>(list->size() - first, kListPart));
      for (int i = 0; i < count; ++i) part.values[i] = (*list)[first + i];
      write_list<<<1, 128, 0, stream>>>(part, to + first, count);
    }
    list->data = to;
    list->strides[0] = 1;
    to += list->size();
  }
}

// ---- The functions of the table.

const char* count_gpus(int* count) {
  *count = 0;
  return text_of(cudaGetDeviceCount(count));
}

const char* describe_gpu(int device, Gpu* gpu) {
  cudaDeviceProp properties;
  if (const char* const why = text_of(cudaGetDeviceProperties(&properties, device))) return why;
  std::snprintf(gpu->name, sizeof gpu->name, "%s", properties.name);
  gpu->major = properties.major;
  gpu->minor = properties.minor;
  gpu->processors = properties.multiProcessorCount;
  gpu->l2_bytes = properties.l2CacheSize;
  gpu->memory_bytes = static_cast<std::int64_t>(properties.totalGlobalMem);
  return nullptr;
}

std::int64_t head_rows_bytes(const ForwardWork& w) {
  WorkspaceCursor cursor(nullptr);
  Call call = w.call;
  add_head_rows(w.heads, cursor, call);
  return (static_cast<std::int64_t>(cursor.used()) + 255) / 256 * 256;
}

std::int64_t bytes_for(const ForwardWork& w) {
  std::int64_t bytes = list_bytes(w.call.sequences);
  if (!w.hopper) return bytes + static_cast<std::int64_t>(plain_forward_workspace(w.call, w.heads));
  bytes += hopper::forward_workspace(w) + head_rows_bytes(w);
  if (w.call.key_sums) bytes += static_cast<std::int64_t>(plain_key_sums_workspace(w.call));
  return bytes;
}

const char* forward(int device, void* stream_pointer, const ForwardWork& given) {
  const auto stream = static_cast<cudaStream_t>(stream_pointer);
  const Current current(device);
  if (const char* const why = text_of(current.error())) return why;
  const Workspace workspace(device, bytes_for(given), stream);
  if (const char* const why = text_of(workspace.error())) return why;
  ForwardWork work = given;
  send_lists(work.call.sequences, workspace.data(), stream);
  char* rest = workspace.data() + list_bytes(given.call.sequences);
  if (!work.hopper) return text_of(launch_plain_forward(work.call, stream, rest, work.heads));
  WorkspaceCursor cursor(rest);
  add_head_rows(work.heads, cursor, work.call);
  rest += head_rows_bytes(given);
  if (const char* const why = hopper::launch_forward(work, rest, stream)) return why;
  if (work.heads.data != nullptr) {
    if (const char* const why = text_of(launch_plain_heads(work.call, stream, work.heads))) return why;
  }
  if (work.call.scores) {
    if (const char* const why = text_of(launch_plain_scores(work.call, stream))) return why;
  }
  if (!work.call.key_sums) return nullptr;
  return text_of(launch_plain_key_sums(work.call, stream, rest + hopper::forward_workspace(work)));
}

// The gradients that the Hopper kernel leaves to the plain ones.
BackwardCall rest_of(const BackwardWork& w) {
  BackwardCall call = w.call;
  call.dq = call.dk = call.dv = call.dscale = call.dsinks = {};
  if (w.bias_sums != hopper::BiasSums::none) call.dbias = {};
  return call;
}

std::int64_t bytes_for(const BackwardWork& w) {
  const std::int64_t lists = list_bytes(w.call.forward.sequences);
  if (!w.hopper) return lists + static_cast<std::int64_t>(plain_backward_workspace(w.call));
  const std::size_t rest = rest_of(w).dbias ? plain_backward_workspace(rest_of(w)) : 0;
  return lists + std::max(hopper::backward_workspace(w), static_cast<std::int64_t>(rest));
}

const char* backward(int device, void* stream_pointer, const BackwardWork& given) {
  const auto stream = static_cast<cudaStream_t>(stream_pointer);
  const Current current(device);
  if (const char* const why = text_of(current.error())) return why;
  const Workspace workspace(device, bytes_for(given), stream);
  if (const char* const why = text_of(workspace.error())) return why;
  BackwardWork work = given;
  send_lists(work.call.forward.sequences, workspace.data(), stream);
  char* const rest = workspace.data() + list_bytes(given.call.forward.sequences);
  if (!work.hopper) return text_of(launch_plain_backward(work.call, work.as_given, stream, rest));
  if (const char* const why = hopper::launch_backward(work, rest, stream)) return why;
  const BackwardCall left = rest_of(work);
  return left.dbias ? text_of(launch_plain_backward(left, {}, stream, rest)) : nullptr;
}

const char* merge(int device, void* stream_pointer, const MergeCall& call, const MergePart* parts) {
  const auto stream = static_cast<cudaStream_t>(stream_pointer);
  const Current current(device);
  if (const char* const why = text_of(current.error())) return why;
  const Workspace workspace(device, static_cast<std::int64_t>(plain_merge_workspace(call)), stream);
  if (const char* const why = text_of(workspace.error())) return why;
  return text_of(launch_plain_merge(call, parts, stream, workspace.data()));
}

}  // namespace
}  // namespace keel::cuda

extern "C" __attribute__((visibility("default"))) const keel::cuda::Table* keel_cuda_table() {
  using namespace keel::cuda;
  static const Table table = {.size = sizeof(Table),
                              .version = KEEL_VERSION,
                              .count_gpus = &count_gpus,
                              .describe_gpu = &describe_gpu,
                              .forward = &forward,
                              .backward = &backward,
                              .merge = &merge,
                              .forward_workspace = &bytes_for,
                              .backward_workspace = &bytes_for};
  return &table;
}
