#pragma once

#include "conformance/expected.h"

namespace keel::conformance {

// The straightforward 16-bit computation that sets the error a 16-bit kernel may have: every intermediate (scores,
// weights, their gradients) is rounded to the case's 16-bit dtype, as separate matrix product and softmax calls do;
// each sum is exact before it is rounded.
struct Naive16 {
  Dense out, weights;
};
Naive16 compute_naive16(const Instance& instance);
ExpectedGradients compute_naive16_gradients(const Instance& instance);

}  // namespace keel::conformance
