// The backward and tangent kernels for f32, f16 and bf16, which accumulate in f32.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/backward_f32.cc"
#include <hwy/foreach_target.h>  // must come first
#include <hwy/highway.h>

#include "cpu/backward-inl.h"
#include "cpu/tangent-inl.h"

HWY_BEFORE_NAMESPACE();
namespace keel::cpu::HWY_NAMESPACE {
BackwardKernel BackwardKernelF32() { return MakeBackwardKernel<FmaProducts<float>>(); }
TangentKernel TangentKernelF32() { return MakeTangentKernel<FmaProducts<float>>(); }
}  // namespace keel::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace keel::cpu {
HWY_EXPORT(BackwardKernelF32);
HWY_EXPORT(TangentKernelF32);
BackwardKernel backward_kernel_f32(std::int64_t target) {
  hwy::ChosenTarget chosen;
  chosen.Update(target);
  return HWY_DISPATCH_TABLE(BackwardKernelF32)[chosen.GetIndex()]();
}
TangentKernel tangent_kernel_f32(std::int64_t target) {
  hwy::ChosenTarget chosen;
  chosen.Update(target);
  return HWY_DISPATCH_TABLE(TangentKernelF32)[chosen.GetIndex()]();
}
}  // namespace keel::cpu
#endif
