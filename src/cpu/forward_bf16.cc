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

double DotPeak(std::int64_t steps) {
  const hn::ScalableTag<float> d;
  auto c0 = hn::Zero(d), c1 = c0, c2 = c0, c3 = c0, c4 = c0, c5 = c0, c6 = c0, c7 = c0, c8 = c0, c9 = c0, c10 = c0,
       c11 = c0;
  const auto x = hn::Zero(d);
  for (std::int64_t i = 0; i < steps; ++i) {
    for (auto* c : {&c0, &c1, &c2, &c3, &c4, &c5, &c6, &c7, &c8, &c9, &c10, &c11}) *c = MultiplyAdd<Pair>(x, x, *c);
  }
  const auto low = hn::Add(hn::Add(hn::Add(c0, c1), hn::Add(c2, c3)), hn::Add(c4, c5));
  const auto high = hn::Add(hn::Add(hn::Add(c6, c7), hn::Add(c8, c9)), hn::Add(c10, c11));
  volatile float keep = hn::GetLane(hn::Add(low, high));
  (void)keep;
  return 2.0 * 12.0 * 32.0 * static_cast<double>(steps);
}

// The tiles are those of a product of 2 × 2 tiles.
double TilePeak(std::int64_t steps) {
  using Unit = HardwareTiles;
  Unit::Begin();  // clears them
  for (std::int64_t i = 0; i < steps; ++i) {
    Unit::MultiplyAdd<0, 4, 6>();
    Unit::MultiplyAdd<1, 4, 7>();
    Unit::MultiplyAdd<2, 5, 6>();
    Unit::MultiplyAdd<3, 5, 7>();
  }
  Unit::End();
  return 2.0 * 4.0 * 16.0 * 16.0 * 32.0 * static_cast<double>(steps);
}
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
double peak_avx512_bf16([[maybe_unused]] std::int64_t steps) {
#if HWY_TARGETS & HWY_AVX3
  return N_AVX3::DotPeak(steps);
#else
  return 0;
#endif
}
double peak_amx([[maybe_unused]] std::int64_t steps) {
#if HWY_TARGETS & HWY_AVX3
  return N_AVX3::TilePeak(steps);
#else
  return 0;
#endif
}
}  // namespace keel::cpu
#endif
