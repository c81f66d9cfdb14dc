#pragma once

#include "conformance/compare.h"

// A call computed slice by slice: queries and keys are cut at random places, every pair of slices is a call of its own
// with Options::origin, results over slices of keys join by merge(), gradients by accumulation. With 16-bit inputs the
// parts are f32. Weights and head statistics, which cannot be merged, come from one call over everything.
namespace keel::conformance {

Forward sliced_attention(std::uint64_t seed);
Backward sliced_backward(std::uint64_t seed);

}  // namespace keel::conformance
