#pragma once

#include <utility>

#include "cuda/hopper/forward.cuh"

// What the files forward_*.cu compile: every kernel of a head size.
namespace keel::cuda::hopper {

struct Kernel {
  const void* function = nullptr;
  int shared_bytes = 0;
};

template <Shape kShape, class Element, bool kRich, Statistics kStatistics>
Kernel kernel_of() {
  using S = ShapeOf<kShape.d, kShape.keys, kShape.groups, kShape.stores>;
  return {reinterpret_cast<const void*>(&forward<Element, S, kRich, kStatistics>), sizeof(Shared<Element, S>)};
}

template <int kD, class Element>
Kernel find_kernel(const Choice& c) {
  constexpr Shape kWide = shape_for(kD, Purpose::wide), kPlain = shape_for(kD, Purpose::plain);
  constexpr Shape kRich = shape_for(kD, Purpose::rich), kFew = shape_for(kD, Purpose::few);
  constexpr Shape kRichMoments = shape_for(kD, Purpose::rich_moments);
  constexpr auto kNone = Statistics::none, kEntropy = Statistics::entropy, kMoments = Statistics::moments;
  if (c.shape == kFew) {
    return c.rich ? kernel_of<kFew, Element, true, kNone>() : kernel_of<kFew, Element, false, kNone>();
  }
  if (c.rich) {
    return c.statistics == kNone ? kernel_of<kRich, Element, true, kNone>()
                                 : kernel_of<kRichMoments, Element, true, kMoments>();
  }
  if (c.statistics == kMoments) return kernel_of<kPlain, Element, false, kMoments>();
  if (c.shape == kWide) {
    return c.statistics == kNone ? kernel_of<kWide, Element, false, kNone>()
                                 : kernel_of<kWide, Element, false, kEntropy>();
  }
  return c.statistics == kNone ? kernel_of<kPlain, Element, false, kNone>()
                               : kernel_of<kPlain, Element, false, kEntropy>();
}

// Of each head size, in a file of its own.
template <int kD>
Kernel kernel_for(const Choice& choice);

#define KEEL_KERNELS_FOR(d)                                                                      \
  template <>                                                                                    \
  Kernel kernel_for<d>(const Choice& choice) {                                                   \
    return choice.bf16 ? find_kernel<d, __nv_bfloat16>(choice) : find_kernel<d, __half>(choice); \
  }

}  // namespace keel::cuda::hopper
