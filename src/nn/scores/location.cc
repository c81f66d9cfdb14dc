#include "keel/nn/init.h"
#include "keel/nn/ops.h"
#include "keel/nn/scores.h"
#include "nn/check.h"
#include "nn/scores/additive.h"

namespace keel::nn {

LocationScore::LocationScore(std::int64_t d_q, std::int64_t longest, Random& random) {
  W = parameter("W", initial({longest, d_q}, Init::xavier_uniform, random));
}

Scored LocationScore::operator()(const Tensor& q, const Tensor& k) const {
  check_heads("location", "q", q, W.size(1));
  check_heads("location", "k", k, k.size(-1));
  if (k.size(2) > W.size(0))
    refuse("location", "k: expected at most ", W.size(0), " keys, got ", shape_text(k.shape()));
  return scores_alone(linear(q, slice(W, 0, 0, k.size(2))));
}

}  // namespace keel::nn
