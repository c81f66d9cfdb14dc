#pragma once

#include <functional>
#include <string>

#include "conformance/instance.h"

namespace keel::conformance {

// Whatever fills the outputs of a call: keel::attention itself, or a kernel forced by the test.
using Forward = std::function<void(const TensorView& q, const TensorView& k, const TensorView& v,
                                   const MutableTensorView& out, const Options&, const Outputs&)>;
using Backward = std::function<void(const BackwardInputs&, const Gradients&, const Options&)>;

// Runs the instance through `run` and compares every output with the oracle: NaN and infinities by position, zeros of
// fully masked rows exactly, memory outside the views untouched, the rest within tolerance.h. "" or what differs.
std::string forward_mismatch(const Instance& instance, const Forward& run);
std::string backward_mismatch(const Instance& instance, const Backward& run);

}  // namespace keel::conformance
