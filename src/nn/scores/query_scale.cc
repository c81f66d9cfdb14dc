#include <cmath>

#include "keel/nn/ops.h"
#include "keel/nn/scores.h"
#include "nn/check.h"

namespace keel::nn {

QueryScaleScore::QueryScaleScore(std::int64_t heads, std::int64_t d_k) {
  if (heads < 1 || d_k < 1) refuse("query_scale", "heads and d_k: expected at least 1, got ", heads, " and ", d_k);
  w = parameter("w", Tensor::zeros({heads, d_k}));
  b = parameter("b", Tensor::zeros({heads}));
}

// scale (B, H, N_q) = exp(w_h·q + b_h)/√d_k; the attention node gives dscale, and the tape does the rest.
Scored QueryScaleScore::operator()(const Tensor& q, const Tensor& k) const {
  const std::int64_t heads = w.size(0), d = w.size(1);
  if (q.rank() != 4 || q.size(1) != heads || q.size(3) != d) {
    refuse("query_scale", "q: expected shape (B, ", heads, ", N, ", d, "), got ", shape_text(q.shape()));
  }
  const Tensor sharpness = exp(sum(q * reshape(w, {heads, 1, d}), -1) + reshape(b, {heads, 1}));
  return {.q = q, .k = k, .scale_tensor = sharpness / std::sqrt(static_cast<double>(d))};
}

}  // namespace keel::nn
