#pragma once

#include <vector>

#include "conformance/dense.h"
#include "conformance/instance.h"

namespace keel::conformance {

// What the oracle says of a case, in float64 from end to end: only the inputs are rounded to the case's dtype.
struct Expected {
  Dense out, lse, max_logit, entropy, max_weight, logit_mean, logit_var, visible, logit_count, weights, key_sums;
  Dense scores;  // empty where not asked for
  std::vector<HeadStatistics> heads;
};

// Shapes are those of GradientMemory, summed dimensions having size 1; dbias, dsinks and drelative are empty where not
// asked for.
struct ExpectedGradients {
  Dense dq, dk, dv, dbias, dscale, dsinks, drelative;
};

Expected compute_expected(const Instance& instance);
ExpectedGradients compute_expected_gradients(const Instance& instance);

}  // namespace keel::conformance
