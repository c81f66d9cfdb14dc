#pragma once

#include <string_view>

#include "keel/nn/tensor.h"

// What had to wait for what, read off the tape that a result of keel::nn holds.
namespace keel::lab {

// The longest chain of operations below a result.
double depth_of(const nn::Tensor& y);

// The fewest operations from a leaf to a result; infinite if there is no path.
double path_of(const nn::Tensor& leaf, const nn::Tensor& y);

// How many operations of a name there are below a result.
double count_of(std::string_view operation, const nn::Tensor& y);

}  // namespace keel::lab
