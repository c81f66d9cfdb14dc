#pragma once

#include "cuda/hopper/bias_sums.cuh"
#include "cuda/plain_reduced.h"

// What comes before and after the main kernel where dbias is summed: see bias_sums.cuh.
namespace keel::cuda::hopper {

// For each block of pairs of an entry, which of the entries before it, the last of its heads, comes there last; −1 for
// none. For entries of different lengths; grid (blocks of keys, entries).
__global__ void order_bias_tiles(const __grid_constant__ BackwardArguments a) {
  const Sequences& s = a.call.forward.sequences;
  const int block = blockIdx.x, b = blockIdx.y, slots = a.cut.query_slots;
  const int sharing = bias_slices(a).heads == 1 ? static_cast<int>(a.call.forward.q_heads) : 1;
  for (int m = threadIdx.x; m < slots; m += blockDim.x) {
    int before = b - 1;
    for (; before >= 0; --before) {
      const KeyTile tile = make_key_tile(s, a.cut, {before, 0, block});
      if (m >= tile.block_begin && m < tile.block_end) break;
    }
    a.bias_before[(std::int64_t{b} * gridDim.x + block) * slots + m] = before < 0 ? -1 : (before + 1) * sharing - 1;
  }
}

// Writes an element of dbias. One that is not finite is computed again as the plain kernel does it: it may owe that to
// a row whose lse is too coarse here.
template <class Stored>
KEEL_DEVICE void put_bias(const BackwardArguments& a, std::int64_t element, double sum) {
  const Call& f = a.call.forward;
  const Sequences& s = f.sequences;
  const Reduced reduced(a.call.dbias, {{s.batch, f.q_heads, s.n_q, s.n_k}});
  if (isfinite(sum)) {
    put_gradient(a.call.dbias, a.call.accumulate, reduced.place(a.call.dbias, element), sum);
  } else {
    BiasGradients<Stored>{a.call, a.rows, reduced}(element, OneLane{});
  }
}

constexpr int kBiasThreads = 128;

// Grid (blocks of rows, blocks of keys, slices). Blocks to which nothing was added are 0.
template <class Stored>
__global__ void __launch_bounds__(kBiasThreads) finish_bias_tiles(const __grid_constant__ BackwardArguments a) {
  __shared__ float sums[64][65];
  const Sequences& s = a.call.forward.sequences;
  const std::int64_t tile = (std::int64_t{blockIdx.z} * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
  const bool any = a.bias_turns[tile] != 0;
  if (!any && a.call.accumulate) return;
  const int row = threadIdx.x % 4 * 2, key = threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4;
  const float4* const from = reinterpret_cast<const float4*>(a.bias_sums + tile * kBiasTile) + threadIdx.x;
  for (int i = 0; i < 8; ++i) {
    const float4 four = any ? __ldcs(from + i * kBiasThreads) : make_float4(0, 0, 0, 0);
    sums[8 * i + row][key] = four.x, sums[8 * i + row + 1][key] = four.y;
    sums[8 * i + row][key + 8] = four.z, sums[8 * i + row + 1][key + 8] = four.w;
  }
  __syncthreads();
  for (int at = threadIdx.x; at < kBiasTile; at += kBiasThreads) {
    const std::int64_t i = blockIdx.x * 64 + at / 64, j = blockIdx.y * 64 + at % 64;
    if (i >= s.n_q || j >= s.n_k) continue;
    put_bias<Stored>(a, (blockIdx.z * s.n_q + i) * s.n_k + j, static_cast<double>(sums[at / 64][at % 64]));
  }
}

// Sums over the entries and heads of a slice, in order. Grid (blocks of keys, slices).
template <class Stored>
__global__ void __launch_bounds__(kBiasThreads) finish_bias_keys(const __grid_constant__ BackwardArguments a) {
  const Call& f = a.call.forward;
  const std::int64_t j = std::int64_t{blockIdx.x} * kBiasThreads + threadIdx.x,
                     keys = std::int64_t{a.cut.key_slots} * 64;
  if (j >= f.sequences.n_k) return;
  const BiasSlices slices = bias_slices(a);
  const std::int64_t b0 = blockIdx.y / slices.heads, h0 = blockIdx.y % slices.heads;
  double sum = 0;
  for (std::int64_t b = b0; b < f.sequences.batch; b += slices.entries) {
    for (std::int64_t h = h0; h < f.q_heads; h += slices.heads) {
      sum += static_cast<double>(a.bias_sums[(b * f.q_heads + h) * keys + j]);
    }
  }
  put_bias<Stored>(a, blockIdx.y * f.sequences.n_k + j, sum);
}

}  // namespace keel::cuda::hopper
