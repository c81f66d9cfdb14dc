// The tools of a benchmark: see tools.h.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include "cuda/hopper/peak.h"
#include "cuda/tools.h"

namespace keel::cuda {
namespace {

const char* text_of(cudaError_t error) { return error == cudaSuccess ? nullptr : cudaGetErrorString(error); }

__device__ std::uint64_t mixed(std::uint64_t x) {  // splitmix64
  x += 0x9e3779b97f4a7c15ull;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

__device__ void store(float* to, float x) { *to = x; }
__device__ void store(__half* to, float x) { *to = __float2half(x); }
__device__ void store(__nv_bfloat16* to, float x) { *to = __float2bfloat16(x); }
__device__ void store(bool* to, float x) { *to = x > -1.1503f; }  // the normal distribution's first eighth is below

template <class T>
__global__ void fill_kernel(T* to, std::int64_t count, std::uint64_t seed) {
  const std::int64_t step = std::int64_t{gridDim.x} * blockDim.x;
  for (std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += step) {
    const std::uint64_t bits = mixed(seed * 0x100000001b3ull + static_cast<std::uint64_t>(i));
    const float a = (static_cast<float>(bits >> 40) + 1) / 16777217.0f,
                b = static_cast<float>(bits & 0xffffff) / 8388608.0f;
    store(to + i, sqrtf(-2 * logf(a)) * cospif(b));
  }
}

template <class T>
const char* fill_as(void* memory, std::int64_t count, std::uint64_t seed) {
  fill_kernel<<<1024, 256>>>(static_cast<T*>(memory), count, seed);
  return text_of(cudaGetLastError());
}

const char* fill(int device, void* memory, DType dtype, std::int64_t count, std::uint64_t seed) {
  if (const char* const why = text_of(cudaSetDevice(device))) return why;
  switch (dtype) {
    case DType::f32:
      return fill_as<float>(memory, count, seed);
    case DType::f16:
      return fill_as<__half>(memory, count, seed);
    case DType::bf16:
      return fill_as<__nv_bfloat16>(memory, count, seed);
    case DType::boolean:
      return fill_as<bool>(memory, count, seed);
    default:
      return "no random numbers of this dtype";
  }
}

const char* allocate(int device, std::int64_t bytes, void** memory) {
  if (const char* const why = text_of(cudaSetDevice(device))) return why;
  return text_of(cudaMalloc(memory, static_cast<std::size_t>(bytes)));
}

void release(int device, void* memory) {
  cudaSetDevice(device);
  cudaFree(memory);
}

const char* copy(int device, void* to, const void* from, std::int64_t bytes) {
  if (const char* const why = text_of(cudaSetDevice(device))) return why;
  return text_of(cudaMemcpyAsync(to, from, static_cast<std::size_t>(bytes), cudaMemcpyDeviceToDevice));
}

const char* multiply(int device, double* flops) {
  *flops = 0;
  cudaDeviceProp properties;
  if (const char* const why = text_of(cudaSetDevice(device))) return why;
  if (const char* const why = text_of(cudaGetDeviceProperties(&properties, device))) return why;
  if (properties.major != 9 || properties.minor != 0) return nullptr;
  return text_of(hopper::launch_products(properties.multiProcessorCount, flops));
}

struct Events {
  cudaEvent_t begin = nullptr, end = nullptr;
  ~Events() {
    if (begin != nullptr) cudaEventDestroy(begin);
    if (end != nullptr) cudaEventDestroy(end);
  }
};

const char* time(int device, void (*work)(void*), void* data, double* seconds) {
  Events events;
  if (const char* const why = text_of(cudaSetDevice(device))) return why;
  if (const char* const why = text_of(cudaEventCreate(&events.begin))) return why;
  if (const char* const why = text_of(cudaEventCreate(&events.end))) return why;
  if (const char* const why = text_of(cudaEventRecord(events.begin))) return why;
  work(data);
  if (const char* const why = text_of(cudaEventRecord(events.end))) return why;
  if (const char* const why = text_of(cudaEventSynchronize(events.end))) return why;
  float milliseconds = 0;
  const char* const why = text_of(cudaEventElapsedTime(&milliseconds, events.begin, events.end));
  *seconds = 1e-3 * static_cast<double>(milliseconds);
  return why;
}

}  // namespace
}  // namespace keel::cuda

extern "C" __attribute__((visibility("default"))) const keel::cuda::Tools* keel_cuda_tools() {
  using namespace keel::cuda;
  static const Tools tools = {.size = sizeof(Tools),
                              .allocate = &allocate,
                              .release = &release,
                              .fill = &fill,
                              .copy = &copy,
                              .multiply = &multiply,
                              .time = &time};
  return &tools;
}
