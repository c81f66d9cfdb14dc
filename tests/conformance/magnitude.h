#pragma once

#include "conformance/expected.h"

namespace keel::conformance {

// How far rounding can carry a result: the formulas of the forward and backward pass with every term taken absolutely.
// A score s_j = scale·Σ q·k + bias − … that is rounded by eps·a_j, a_j being the sum of its terms' sizes, changes
// weight p_j by about p_j·eps·(a_j + Σ p·a). Multiplied by eps, these arrays are first-order bounds on the error of
// each element.
//   plain      the size of the terms that are added, as if the scores were exact
//   amplified  the same times 1 + a_j + Σ p·a
struct Magnitude {
  Dense plain, amplified;
};

struct ForwardMagnitudes {
  Magnitude out, weights, key_sums;
  Dense score, counted;  // (B, H_q, N_q): the largest a_j of the keys that lse and entropy, or the moments, are over
};
struct GradientMagnitudes {
  Magnitude dq, dk, dv, dbias, dscale, dsinks, drelative;
};

ForwardMagnitudes compute_magnitudes(const Instance& instance);
// The size a of each score at the stage that the case asks for, (B, H_q, N_q, N_k).
Dense compute_score_sizes(const Instance& instance);
GradientMagnitudes compute_gradient_magnitudes(const Instance& instance);

}  // namespace keel::conformance
