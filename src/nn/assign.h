#pragma once

#include "keel/nn/module.h"

namespace keel::nn {

// Copies `values` into the dense `targets` of the same names. Names, shapes and kinds must agree; where they do not, it
// raises and nothing is changed.
void assign(const char* operation, const NamedTensors& targets, const NamedTensors& values);

}  // namespace keel::nn
