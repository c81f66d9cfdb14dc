#pragma once

#include <cuda.h>
#include <cuda_runtime.h>

#include <array>
#include <cstdint>

#include "core/call.h"

// Tensor maps, by which the copy engine finds tiles.
namespace keel::cuda::hopper {

using Encode = decltype(&cuTensorMapEncodeTiled);

inline Encode encode_function() {
  static const Encode function = [] {
    void* found = nullptr;
    cudaDriverEntryPointQueryResult result;
    if (cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, 12000, cudaEnableDefault, &result) !=
            cudaSuccess ||
        result != cudaDriverEntryPointSuccess) {
      found = nullptr;
    }
    return reinterpret_cast<Encode>(found);
  }();
  return function;
}

// Tiles of `box` rows by 64 columns; where rows of `share` heads interleave, `box` counts all of theirs.
template <class Pointer>
bool encode(const BasicStrided<Pointer>& x, DType dtype, const std::array<std::int64_t, 4>& sizes, int share, int box,
            CUtensorMap& map) {
  // columns, heads that interleave, rows, heads, batch
  const cuuint64_t dims[5] = {static_cast<cuuint64_t>(sizes[3]), static_cast<cuuint64_t>(share),
                              static_cast<cuuint64_t>(sizes[2]), static_cast<cuuint64_t>(sizes[1] / share),
                              static_cast<cuuint64_t>(sizes[0])};
  const auto bytes = [](std::int64_t size, std::int64_t stride) -> cuuint64_t {
    return size > 1 ? static_cast<cuuint64_t>(stride) * 2 : 16;  // of a single row any will do
  };
  const cuuint64_t strides[4] = {bytes(share, x.head), bytes(sizes[2], x.row), bytes(sizes[1] / share, x.head * share),
                                 bytes(sizes[0], x.batch)};
  const cuuint32_t boxes[5] = {64, static_cast<cuuint32_t>(share), static_cast<cuuint32_t>(box / share), 1, 1};
  const cuuint32_t ones[5] = {1, 1, 1, 1, 1};
  const auto type = dtype == DType::bf16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
  return encode_function()(&map, type, 5, const_cast<void*>(static_cast<const void*>(x.data)), dims, strides, boxes,
                           ones, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                           CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

// Tiles of 64 rows by 128 bytes of a bias or mask, (batch, heads, rows, keys). A dimension of stride 0 has size 1, and
// rows of that kind come one at a time.
inline bool encode_term(const Strided& x, std::array<std::int64_t, 4> sizes, CUtensorMap& map) {
  const std::int64_t size = size_of(x.dtype), given[3] = {x.batch, x.head, x.row};
  for (int i = 0; i < 3; ++i) {
    if (given[i] == 0) sizes[i] = 1;
  }
  const auto bytes = [&](int i) -> cuuint64_t {
    return sizes[i] > 1 ? static_cast<cuuint64_t>(given[i] * size) : 16;  // of a single one any will do
  };
  const cuuint64_t dims[5] = {static_cast<cuuint64_t>(sizes[3]), 1, static_cast<cuuint64_t>(sizes[2]),
                              static_cast<cuuint64_t>(sizes[1]), static_cast<cuuint64_t>(sizes[0])};
  const cuuint64_t strides[4] = {16, bytes(2), bytes(1), bytes(0)};
  const cuuint32_t boxes[5] = {static_cast<cuuint32_t>(128 / size), 1, x.row != 0 ? 64u : 1u, 1, 1};
  const cuuint32_t ones[5] = {1, 1, 1, 1, 1};
  const auto type = size == 1 ? CU_TENSOR_MAP_DATA_TYPE_UINT8 : CU_TENSOR_MAP_DATA_TYPE_UINT16;
  return encode_function()(&map, type, 5, const_cast<void*>(x.data), dims, strides, boxes, ones,
                           CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                           CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

}  // namespace keel::cuda::hopper
