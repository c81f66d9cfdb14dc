#include "keel/nn/scores.h"

namespace keel::nn {

// Forward and backward are the attention node's, whose scale is 1/√d_k when none is given.
Scored ScaledDotScore::operator()(const Tensor& q, const Tensor& k) const { return {.q = q, .k = k}; }

}  // namespace keel::nn
