#pragma once

#include "keel/nn/module.h"

namespace keel::nn {

// Copies `values` into the dense `targets` of the same names. Names, shapes and kinds must agree; otherwise it
// raises and changes nothing.
void assign(const char* operation, const NamedTensors& targets, const NamedTensors& values);

}  // namespace keel::nn
