// The forward kernels for bf16 on the matrix units of x86. Both units come with AVX-512.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/forward_bf16.cc"
#include <hwy/foreach_target.h>  // must come first
#include <hwy/highway.h>

#include "cpu/forward-inl.h"
#include "cpu/tile_products-inl.h"
#include "cpu/unit.h"

HWY_BEFORE_NAMESPACE();
namespace keel::cpu::HWY_NAMESPACE {
#if HWY_TARGET == HWY_AVX3
ForwardKernel ForwardKernelDot() { return MakeForwardKernel<DotProducts>(); }
ForwardKernel ForwardKernelTiles() { return MakeForwardKernel<TileProducts<HardwareTiles>>(); }
#endif
}  // namespace keel::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace keel::cpu {
ForwardKernel forward_kernel_avx512_bf16() {
#if HWY_TARGETS & HWY_AVX3
  return N_AVX3::ForwardKernelDot();
#else
  return {};
#endif
}
ForwardKernel forward_kernel_amx() {
#if HWY_TARGETS & HWY_AVX3
  return N_AVX3::ForwardKernelTiles();
#else
  return {};
#endif
}
}  // namespace keel::cpu
#endif
