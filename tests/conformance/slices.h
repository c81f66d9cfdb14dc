#pragma once

#include "conformance/compare.h"

// A call computed slice by slice: queries and keys are cut at random places, every pair of slices is a call of its own
// with Options::origin, results over slices of keys join by merge(), gradients by accumulation. With 16-bit inputs the
// parts are f32. Weights, head statistics and key sums, which merge() does not join, come from one call over
// everything.
namespace keel::conformance {

using Merge = std::function<void(std::span<const Partial>, const MutableTensorView& out, const Outputs&)>;

inline void merge_parts(std::span<const Partial> parts, const MutableTensorView& out, const Outputs& outputs) {
  keel::merge(parts, out, outputs);
}

// The seed says where to cut; the functions serve the calls.
Forward sliced_attention(std::uint64_t seed, const Forward& attend = keel::attention, const Merge& join = merge_parts);
Backward sliced_backward(std::uint64_t seed, const Backward& backward = keel::attention_backward);

}  // namespace keel::conformance
