#pragma once

#include "keel/attention.h"

// An honest kernel without any speed, to try the comparison on: one pass over the keys in blocks with a running maximum
// and sum, all arithmetic in the type that sums are kept in, the backward pass from lse. What it gets wrong is what
// rounding gets wrong.
namespace keel::conformance {

void streaming_attention(const TensorView& q, const TensorView& k, const TensorView& v, const MutableTensorView& out,
                         const Options& options, const Outputs& outputs);
void streaming_attention_backward(const BackwardInputs& inputs, const Gradients& gradients, const Options& options);

}  // namespace keel::conformance
