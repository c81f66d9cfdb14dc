#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "conformance/compare.h"
#include "core/layout.h"
#include "plan/plan.h"

// Calls whose arrays lie on the CPU, run on the GPU over copies of them.
namespace keel::test {

inline void check_cuda(cudaError_t error) {
  if (error != cudaSuccess) throw std::runtime_error(std::string("CUDA: ") + cudaGetErrorString(error));
}

inline bool has_gpu() {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess && count > 0;
}

// Copies of arrays on the GPU, gaps between their elements included. Element 0 of each lies at a multiple of 256 bytes,
// plus `offset`.
class GpuCopies {
 public:
  explicit GpuCopies(std::int64_t offset = 0) : offset_(offset) {}
  GpuCopies(const GpuCopies&) = delete;
  ~GpuCopies() {
    for (const Copy& copy : copies_) cudaFree(copy.memory);
  }

  template <std::size_t Rank, class Pointer>
  BasicView<Rank, Pointer> send(BasicView<Rank, Pointer> view) {
    if (!view.given()) return view;
    view.device = {DeviceKind::cuda, 0};
    const Layout layout = layout_of(view);
    if (extent_of(layout).count == 0 || view.data == nullptr) return view;
    const Span span = extent_of(layout).span;
    view.data = send(span.low, span.size, layout.base, std::is_same_v<Pointer, void*>);
    return view;
  }
  ListView send(const ListView& list) { return list.empty() ? list : ListView(send(BasicView<1, const void*>(list))); }
  std::span<HeadStatistics> send(std::span<HeadStatistics> heads) {
    if (heads.empty()) return heads;
    const auto from = reinterpret_cast<std::uintptr_t>(heads.data());
    return {static_cast<HeadStatistics*>(send(from, heads.size_bytes(), from, true)), heads.size()};
  }

  // What the GPU wrote, back to the CPU's arrays.
  void fetch() const {
    check_cuda(cudaDeviceSynchronize());
    for (const Copy& copy : copies_) {
      if (copy.written) check_cuda(cudaMemcpy(copy.host, copy.device, copy.size, cudaMemcpyDeviceToHost));
    }
  }

 private:
  struct Copy {
    void *memory, *host, *device;
    std::size_t size;
    bool written;
  };

  // Arrays that share memory, such as a packed q, k and v, are sent once for each view.
  void* send(std::uintptr_t low, std::size_t size, std::uintptr_t element, bool written) {
    const std::size_t before = element - low;
    Copy copy{nullptr, reinterpret_cast<void*>(low), nullptr, size, written};
    check_cuda(cudaMalloc(&copy.memory, size + 512 + static_cast<std::size_t>(offset_)));
    const std::size_t pad = (256 - before % 256) % 256 + static_cast<std::size_t>(offset_);
    copy.device = static_cast<char*>(copy.memory) + pad;
    check_cuda(cudaMemcpy(copy.device, copy.host, size, cudaMemcpyHostToDevice));
    copies_.push_back(copy);
    return static_cast<char*>(copy.device) + before;
  }

  std::int64_t offset_;
  std::vector<Copy> copies_;
};

// How calls are made there.
struct OnGpu {
  bool plain = false;                             // by the plain kernel
  bool lists_there = true;                        // lengths and offsets lie on the GPU too
  bool any_order = false;                         // of the sums of dq
  std::int64_t offset = 0;                        // bytes, of arrays from a multiple of 256
  std::map<std::string, int>* kernels = nullptr;  // how often each served
};

Options send(GpuCopies& copies, const Options& options, bool lists_there);
conformance::Forward forward_on_gpu(const OnGpu& how);
conformance::Backward backward_on_gpu(const OnGpu& how);

}  // namespace keel::test
