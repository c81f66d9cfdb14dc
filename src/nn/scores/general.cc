#include "keel/nn/init.h"
#include "keel/nn/ops.h"
#include "keel/nn/scores.h"
#include "nn/scores/additive.h"

namespace keel::nn {

GeneralScore::GeneralScore(std::int64_t d_q, std::int64_t d_k, Random& random) {
  W = parameter("W", initial({d_q, d_k}, Init::xavier_uniform, random));
}

// sᵀ W h = s·(W h): the keys are mapped to the space of the queries once, by an operation with its own gradient.
Tensor GeneralScore::prepared(const Tensor& k) const {
  check_heads("general", "k", k, W.size(1));
  return linear(k, W);
}

Scored GeneralScore::score(const Tensor& q, const Tensor& prepared_k) const {
  check_heads("general", "q", q, W.size(0));
  check_heads("general", "prepared k", prepared_k, W.size(0));
  return {.q = q, .k = prepared_k, .scale = 1.0};
}

}  // namespace keel::nn
