#pragma once

namespace keel {

// A score at or below this counts as masked in logit_mean and logit_var, and nowhere else. Biases that mask by a number
// (−1e30, the lowest float) leave such scores, whose squares f32 cannot hold; no model's own logits come near. It is
// fixed, so that the order of the keys does not matter.
inline constexpr double kMaskedScore = -0x1p64;

}  // namespace keel
