#pragma once

#include "cuda/hopper/forward.h"
#include "cuda/hopper/ptx.cuh"

// c·tanh(s/c) of scores in units of q·k.
namespace keel::cuda::hopper {

// As c·(1 − 2 / (1 + e^(2s/c))).
KEEL_DEVICE float capped_power(const SoftcapArguments& cap, float s) {
  const float x = s * cap.to_power;
  constexpr float kMost = 30.0f;                        // beyond, the tangent is 1
  return 1.0f + ptx::exp2_fast(x > kMost ? kMost : x);  // a NaN stays one
}
KEEL_DEVICE float capped(const SoftcapArguments& cap, float s) {
  return fmaf(-2.0f * cap.top, ptx::reciprocal_fast(capped_power(cap, s)), cap.top);
}
// Four share a reciprocal: the units for it are few.
KEEL_DEVICE void cap_4(const SoftcapArguments& cap, float& a, float& b, float& c, float& d) {
  const float x[4] = {capped_power(cap, a), capped_power(cap, b), capped_power(cap, c), capped_power(cap, d)};
  const float low = x[0] * x[1], high = x[2] * x[3];
  const float all = -2.0f * cap.top * ptx::reciprocal_fast(low * high), of_low = all * high, of_high = all * low;
  a = fmaf(of_low, x[1], cap.top);
  b = fmaf(of_low, x[0], cap.top);
  c = fmaf(of_high, x[3], cap.top);
  d = fmaf(of_high, x[2], cap.top);
}

// In units of log 2, less `reference`, of a score within cap.near.
KEEL_DEVICE float near_capped(const SoftcapArguments& cap, float s, float reference) {
  const float u = s * s;
  return fmaf(s, fmaf(u, fmaf(u, cap.p2, cap.p1), cap.p0), -reference);
}

}  // namespace keel::cuda::hopper
