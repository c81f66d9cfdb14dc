#pragma once

#include "cuda/hopper/backward.cuh"
#include "cuda/hopper/backward_wide.cuh"
#include "cuda/hopper/shapes.h"

// What the files backward_*.cu compile: the kernel of a head size.
namespace keel::cuda::hopper {

struct BackwardKernel {
  const void* function = nullptr;
  int shared_bytes = 0;
};

constexpr int kMostShared = 227 * 1024;  // bytes of a CTA

template <int kD, bool kTerms, class Element>
BackwardKernel backward_kernel() {
  constexpr BackwardShape kShape = backward_shape_for(kD, kTerms);
  if constexpr (kShape.keys == 64) {
    using S = WideShapeOf<kD, kTerms>;
    static_assert(sizeof(WideShared<Element, S>) <= kMostShared);
    return {reinterpret_cast<const void*>(&backward_wide<Element, S>), sizeof(WideShared<Element, S>)};
  } else {
    using S = BackwardShapeOf<kShape.d, kShape.rows>;
    static_assert(sizeof(BackwardShared<Element, S>) <= kMostShared);
    return {reinterpret_cast<const void*>(&backward<Element, S>), sizeof(BackwardShared<Element, S>)};
  }
}

// Of each head size, in files of their own.
template <int kD, bool kTerms>
BackwardKernel backward_kernel_for(bool bf16);

#define KEEL_BACKWARD_KERNELS_FOR(d, terms)                                                         \
  template <>                                                                                       \
  BackwardKernel backward_kernel_for<d, terms>(bool bf16) {                                         \
    return bf16 ? backward_kernel<d, terms, __nv_bfloat16>() : backward_kernel<d, terms, __half>(); \
  }

}  // namespace keel::cuda::hopper
