#include "keel/nn/init.h"
#include "keel/nn/ops.h"
#include "keel/nn/scores.h"
#include "nn/scores/additive.h"

namespace keel::nn {

ConcatScore::ConcatScore(std::int64_t d_q, std::int64_t d_k, std::int64_t d_a, Random& random) {
  W = parameter("W", initial({d_a, d_q + d_k}, Init::xavier_uniform, random));
  v = parameter("v", initial({d_a}, Init::xavier_uniform, random, Fans{d_a, 1}));
}

// W [s; h] = W_s s + W_h h with W split in two, so this is the additive score with one matrix; nothing is concatenated.
Scored ConcatScore::operator()(const Tensor& q, const Tensor& k) const {
  const std::int64_t d_q = q.size(-1);
  check_heads("concat", "k", k, W.size(1) - d_q);
  check_heads("concat", "q", q, W.size(1) - k.size(-1));
  return scores_alone(additive_scores(linear(q, slice(W, 1, 0, d_q)), linear(k, slice(W, 1, d_q, W.size(1))), v));
}

}  // namespace keel::nn
