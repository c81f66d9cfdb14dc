#pragma once

#include "keel/nn/tensor.h"

namespace keel::nn {

// One step of a GRU (recurrent.h) as one operation: x_gates = W_ih x + b_ih and h_gates = W_hh h + b_hh (B, 3d), h (B,
// d) → h' (B, d)
Tensor gru_cell(const Tensor& x_gates, const Tensor& h_gates, const Tensor& h);

}  // namespace keel::nn
