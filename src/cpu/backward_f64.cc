// The backward kernel for f64.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/backward_f64.cc"
#include <hwy/foreach_target.h>  // must come first
#include <hwy/highway.h>

#include "cpu/backward-inl.h"

HWY_BEFORE_NAMESPACE();
namespace keel::cpu::HWY_NAMESPACE {
BackwardKernel BackwardKernelF64() { return MakeBackwardKernel<FmaProducts<double>>(); }
}  // namespace keel::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace keel::cpu {
HWY_EXPORT(BackwardKernelF64);
BackwardKernel backward_kernel_f64(std::int64_t target) {
  hwy::ChosenTarget chosen;
  chosen.Update(target);
  return HWY_DISPATCH_TABLE(BackwardKernelF64)[chosen.GetIndex()]();
}
}  // namespace keel::cpu
#endif
