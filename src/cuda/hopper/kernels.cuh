#pragma once

#include <utility>

#include "cuda/hopper/forward.cuh"

// What the files forward_*.cu compile: every kernel of a head size.
namespace keel::cuda::hopper {

struct Kernel {
  const void* function = nullptr;
  int shared_bytes = 0;
};

template <Shape kShape, class Element, Terms kTerms, Statistics kStatistics>
Kernel kernel_of() {
  constexpr int kTermBytes = kTerms == Terms::bias ? 2 : kTerms == Terms::mask ? 1 : 0;
  using S = ShapeOf<kShape.d, kShape.keys, kShape.groups, kShape.roomy, kTermBytes>;
  return {reinterpret_cast<const void*>(&forward<Element, S, kTerms, kStatistics>), sizeof(Shared<Element, S>)};
}

template <int kD, class Element>
Kernel find_kernel(const Choice& c) {
  constexpr Shape kWide = shape_for(kD, Purpose::wide), kPlain = shape_for(kD, Purpose::plain);
  constexpr auto kNone = Statistics::none;
  constexpr auto kPosition = Terms::none;
  if constexpr (serves_all(kD)) {
    constexpr auto kEntropy = Statistics::entropy, kMoments = Statistics::moments;
    constexpr Shape kFew = shape_for(kD, Purpose::few), kRich = shape_for(kD, Purpose::rich);
    if (c.terms == Terms::any) return kernel_of<kRich, Element, Terms::any, kMoments>();
    if (c.shape == kFew) return kernel_of<kFew, Element, kPosition, kNone>();
    if (c.statistics == kMoments) return kernel_of<kPlain, Element, kPosition, kMoments>();
    if (c.statistics == kEntropy) return kernel_of<kWide, Element, kPosition, kEntropy>();
  }
  return c.shape == kWide ? kernel_of<kWide, Element, kPosition, kNone>()
                          : kernel_of<kPlain, Element, kPosition, kNone>();
}

template <int kD, class Element, Terms kTerm>
Kernel single_term() {
  return kernel_of<shape_for(kD, purpose_of(kTerm)), Element, kTerm, Statistics::none>();
}

template <int kD, class Element>
Kernel find_single_term(Terms term) {
  switch (term) {
    case Terms::softcap:
      return single_term<kD, Element, Terms::softcap>();
    case Terms::alibi:
      return single_term<kD, Element, Terms::alibi>();
    case Terms::bias:
      return single_term<kD, Element, Terms::bias>();
    case Terms::mask:
      return single_term<kD, Element, Terms::mask>();
    case Terms::dropout:
      return single_term<kD, Element, Terms::dropout>();
    default:
      return {};
  }
}

// Of each head size, in files of their own.
template <int kD>
Kernel kernel_for(const Choice& choice);
template <int kD>
Kernel single_term_kernel_for(const Choice& choice);

#define KEEL_KERNELS_FOR(d)                                                                      \
  template <>                                                                                    \
  Kernel kernel_for<d>(const Choice& choice) {                                                   \
    return choice.bf16 ? find_kernel<d, __nv_bfloat16>(choice) : find_kernel<d, __half>(choice); \
  }
#define KEEL_SINGLE_TERM_KERNELS_FOR(d)                                                                                \
  template <>                                                                                                          \
  Kernel single_term_kernel_for<d>(const Choice& choice) {                                                             \
    return choice.bf16 ? find_single_term<d, __nv_bfloat16>(choice.terms) : find_single_term<d, __half>(choice.terms); \
  }

}  // namespace keel::cuda::hopper
