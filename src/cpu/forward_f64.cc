// The forward kernel for f64.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/forward_f64.cc"
#include <hwy/foreach_target.h>  // must come first
#include <hwy/highway.h>

#include "cpu/forward-inl.h"

HWY_BEFORE_NAMESPACE();
namespace keel::cpu::HWY_NAMESPACE {
ForwardKernel ForwardKernelF64() { return MakeForwardKernel<FmaProducts<double>>(); }
}  // namespace keel::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace keel::cpu {
HWY_EXPORT(ForwardKernelF64);
ForwardKernel forward_kernel_f64(std::int64_t target) {
  hwy::ChosenTarget chosen;
  chosen.Update(target);
  return HWY_DISPATCH_TABLE(ForwardKernelF64)[chosen.GetIndex()]();
}
}  // namespace keel::cpu
#endif
