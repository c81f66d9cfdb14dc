// The forward kernel for f32, f16 and bf16, which accumulate in f32.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/forward_f32.cc"
#include <hwy/foreach_target.h>  // must come first
#include <hwy/highway.h>

#include "cpu/forward-inl.h"

HWY_BEFORE_NAMESPACE();
namespace keel::cpu::HWY_NAMESPACE {
ForwardKernel ForwardKernelF32() { return MakeForwardKernel<FmaProducts<float>>(); }
}  // namespace keel::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace keel::cpu {
HWY_EXPORT(ForwardKernelF32);
ForwardKernel forward_kernel_f32(std::int64_t target) {
  hwy::ChosenTarget chosen;
  chosen.Update(target);
  return HWY_DISPATCH_TABLE(ForwardKernelF32)[chosen.GetIndex()]();
}
}  // namespace keel::cpu
#endif
