#include "keel/nn/ops.h"
#include "keel/nn/scores.h"
#include "nn/check.h"

namespace keel::nn {

Attention::Attention(std::unique_ptr<ScoreFunction> score) : score_(std::move(score)) {
  if (score_ == nullptr) refuse("Attention", "score: expected a score function, got none");
  child("score", *score_);
}

Tensor Attention::operator()(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& options,
                             AttentionReport* report) const {
  check_given("Attention", "k", k);
  if (k.rank() != 3) return with_prepared(q, score_->prepared(k), v, options, report);
  const Tensor one_head = reshape(k, {k.size(0), 1, k.size(1), k.size(2)});
  const Tensor keys = score_->prepared(one_head);
  return with_prepared(q, reshape(keys, {keys.size(0), keys.size(2), keys.size(3)}), v, options, report);
}

Tensor Attention::with_prepared(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& options,
                                AttentionReport* report) const {
  if (options.scale || options.scale_tensor.given()) {
    refuse("Attention", "scale: expected none, since the score function has it, got one");
  }
  check_given("Attention", "q", q);
  check_given("Attention", "k", k);
  check_given("Attention", "v", v);
  if (q.rank() == 3 && k.rank() == 3 && v.rank() == 3) {
    const auto one_head = [](const Tensor& x) { return reshape(x, {x.size(0), 1, x.size(1), x.size(2)}); };
    const Tensor o = with_prepared(one_head(q), one_head(k), one_head(v), options, report);
    return reshape(o, {o.size(0), o.size(2), o.size(3)});
  }
  const Scored scored = score_->score(q, k);
  AttentionOptions all = options;
  all.scale = scored.scale;
  all.scale_tensor = scored.scale_tensor;
  if (scored.bias.given()) all.bias = options.bias.given() ? scored.bias + options.bias : scored.bias;
  return attention(scored.q, scored.k, v, all, report);
}

}  // namespace keel::nn
