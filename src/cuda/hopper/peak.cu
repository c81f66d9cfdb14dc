// The rate of the matrix units alone: each warpgroup multiplies 64 rows by 256 columns over 64 numbers, again and
// again. Bound by the matrix units, and by the clock that the power they draw leaves.
#include "cuda/hopper/peak.h"
#include "cuda/hopper/ptx.cuh"
#include "wgmma.cuh"

namespace keel::cuda::hopper {
namespace {

constexpr int kWarpgroups = 2, kRows = 64, kColumns = 256, kDepth = 64, kSteps = 2048;
constexpr int kBytes = (kWarpgroups * kRows + kColumns) * kDepth * 2 + 1024;  // and room to align

__global__ void __launch_bounds__(kWarpgroups * 128, 1) multiply(float* never) {
  extern __shared__ char memory[];
  char* const base = memory + (1024 - ptx::shared_address(memory) % 1024) % 1024;
  auto* const words = reinterpret_cast<std::uint32_t*>(base);
  for (int i = threadIdx.x; i < (kWarpgroups * kRows + kColumns) * kDepth / 2; i += blockDim.x) {
    words[i] = (i * 2654435761u & 0x807f807fu) | 0x3f003f00u;  // pairs of bf16, from ½ to 1 in size, of either sign
  }
  ptx::publish_to_copies();
  __syncthreads();
  const int group = threadIdx.x / 128;
  const std::uint64_t a = ptx::operand(ptx::shared_address(base) + group * kRows * kDepth * 2, 0);
  const std::uint64_t b = ptx::operand(ptx::shared_address(base) + kWarpgroups * kRows * kDepth * 2, 0);
  float sums[kColumns / 2] = {};
  for (int step = 0; step < kSteps; ++step) {
    ptx::hold(sums);
    ptx::begin_products();
#pragma unroll
    for (int k = 0; k < kDepth / 16; ++k) {
      ptx::RowsByRows<__nv_bfloat16, kColumns>::run(sums, a + ptx::further(32 * k), b + ptx::further(32 * k), 1);
    }
    ptx::commit_products();
    ptx::wait_products<0>();
    ptx::hold(sums);
  }
  float total = 0;
  for (const float x : sums) total += x;
  if (never != nullptr) *never = total;
}

}  // namespace

cudaError_t launch_products(int processors, double* flops) {
  if (const cudaError_t e = cudaFuncSetAttribute(multiply, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes))
    return e;
  multiply<<<processors, kWarpgroups * 128, kBytes>>>(nullptr);
  *flops = 2.0 * kRows * kColumns * kDepth * kSteps * kWarpgroups * processors;
  return cudaGetLastError();
}

}  // namespace keel::cuda::hopper
