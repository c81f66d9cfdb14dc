// The backward and tangent kernels for f64.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/backward_f64.cc"
#include <hwy/foreach_target.h>  // must come first
#include <hwy/highway.h>

#include "cpu/backward-inl.h"
#include "cpu/tangent-inl.h"

HWY_BEFORE_NAMESPACE();
namespace keel::cpu::HWY_NAMESPACE {
BackwardKernel BackwardKernelF64() { return MakeBackwardKernel<FmaProducts<double>>(); }
TangentKernel TangentKernelF64() { return MakeTangentKernel<FmaProducts<double>>(); }
}  // namespace keel::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace keel::cpu {
HWY_EXPORT(BackwardKernelF64);
HWY_EXPORT(TangentKernelF64);
BackwardKernel backward_kernel_f64(std::int64_t target) {
  hwy::ChosenTarget chosen;
  chosen.Update(target);
  return HWY_DISPATCH_TABLE(BackwardKernelF64)[chosen.GetIndex()]();
}
TangentKernel tangent_kernel_f64(std::int64_t target) {
  hwy::ChosenTarget chosen;
  chosen.Update(target);
  return HWY_DISPATCH_TABLE(TangentKernelF64)[chosen.GetIndex()]();
}
}  // namespace keel::cpu
#endif
