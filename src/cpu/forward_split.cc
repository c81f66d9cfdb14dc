// The forward kernel for f32 on AMX, which multiplies bf16: in three parts.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/forward_split.cc"
#include <hwy/foreach_target.h>  // must come first
#include <hwy/highway.h>

#include "cpu/forward-inl.h"
#include "cpu/split_products-inl.h"
#include "cpu/unit.h"

HWY_BEFORE_NAMESPACE();
namespace keel::cpu::HWY_NAMESPACE {
#if HWY_TARGET == HWY_AVX3
ForwardKernel ForwardKernelSplit() { return MakeForwardKernel<SplitProducts<HardwareTiles>>(); }
#endif
}  // namespace keel::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace keel::cpu {
ForwardKernel forward_kernel_amx_split() {
#if HWY_TARGETS & HWY_AVX3
  return N_AVX3::ForwardKernelSplit();
#else
  return {};
#endif
}
}  // namespace keel::cpu
#endif
