#pragma once

#include "keel/nn/tensor.h"

namespace keel::nn {

// Strides that read x as if it had `shape`, which it broadcasts to.
Shape broadcast_strides(const Tensor& x, const Shape& shape);

// A gradient summed over what was broadcast from `shape`; x itself if nothing was.
Tensor sum_to(const Tensor& x, const Shape& shape);

}  // namespace keel::nn
