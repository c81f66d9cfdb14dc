#include <cmath>

#include "keel/nn/ops.h"
#include "keel/nn/scores.h"
#include "nn/check.h"

namespace keel::nn {

TemperatureScore::TemperatureScore(std::int64_t heads, std::int64_t d_k) {
  if (heads < 1 || d_k < 1) refuse("temperature", "heads and d_k: expected at least 1, got ", heads, " and ", d_k);
  tau = parameter("tau", Tensor::full({heads}, std::sqrt(static_cast<double>(d_k))));
}

// scale = 1/τ, one per head; the attention node gives dscale, and the division turns it into dτ.
Scored TemperatureScore::operator()(const Tensor& q, const Tensor& k) const {
  if (q.rank() != 4 || q.size(1) != tau.size(0)) {
    refuse("temperature", "q: expected shape (B, ", tau.size(0), ", N, d_k), got ", shape_text(q.shape()));
  }
  return {.q = q, .k = k, .scale_tensor = reshape(Tensor::full({1}, 1.0, tau.dtype()) / tau, {1, tau.size(0), 1})};
}

}  // namespace keel::nn
