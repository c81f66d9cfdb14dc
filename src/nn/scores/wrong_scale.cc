#include <cmath>

#include "keel/nn/scores.h"
#include "nn/check.h"

namespace keel::nn {

std::unique_ptr<WrongScaleScore> WrongScaleScore::none() {
  return std::unique_ptr<WrongScaleScore>(new WrongScaleScore(1.0));
}

std::unique_ptr<WrongScaleScore> WrongScaleScore::by_model_size(std::int64_t d_model) {
  if (d_model < 1) refuse("wrong_scale", "d_model: expected at least 1, got ", d_model);
  return std::unique_ptr<WrongScaleScore>(new WrongScaleScore(1.0 / std::sqrt(static_cast<double>(d_model))));
}

// Forward and backward are the attention node's.
Scored WrongScaleScore::operator()(const Tensor& q, const Tensor& k) const { return {.q = q, .k = k, .scale = scale_}; }

}  // namespace keel::nn
