#include "lab/translate/attender.h"

namespace keel::lab::translate {
namespace {

using nn::Linear;
using nn::Tensor;

// (B, N, d) as (B, heads, N, d/heads)
Tensor split_heads(const Tensor& x, std::int64_t heads) {
  if (heads == 1) return reshape(x, {x.size(0), 1, x.size(1), x.size(2)});
  return transpose(reshape(x, {x.size(0), x.size(1), heads, x.size(2) / heads}), 1, 2);
}

// Every step sees the encoder's last states.
class NoAttender : public Attender {
 public:
  Memory remember(const Tensor&, const Tensor& last) const override { return {last, last}; }
  Tensor look(const Tensor&, const Memory& memory, Tensor*) const override { return memory.values; }
};

// Scores of any kind, between projections if the arm has them.
class ScoreAttender : public Attender {
 public:
  ScoreAttender(std::unique_ptr<nn::ScoreFunction> score, const Arm& arm, std::int64_t d, bool projects,
                nn::Random& random)
      : heads_(arm.heads), attention_(std::move(score)) {
    child("attention", attention_);
    const Linear::Settings settings{.bias = false, .init = nn::Init::xavier_uniform};
    if (projects) {
      W_Q_ = std::make_unique<Linear>(d, arm.heads * arm.d_k, random, settings);
      W_K_ = std::make_unique<Linear>(d, arm.heads * arm.d_k, random, settings);
      child("W_Q", *W_Q_);
      child("W_K", *W_K_);
    }
    if (heads_ > 1) {
      const std::int64_t d_v = (d + heads_ - 1) / heads_ * heads_;
      W_V_ = std::make_unique<Linear>(d, d_v, random, settings);
      W_O_ = std::make_unique<Linear>(d_v, d, random, settings);
      child("W_V", *W_V_);
      child("W_O", *W_O_);
    }
  }

  Memory remember(const Tensor& states, const Tensor&) const override {
    const Tensor keys = split_heads(W_K_ ? (*W_K_)(states) : states, heads_);
    return {attention_.score().prepared(keys), split_heads(W_V_ ? (*W_V_)(states) : states, heads_)};
  }

  Tensor look(const Tensor& s, const Memory& memory, Tensor* weights) const override {
    const Tensor q = W_Q_ ? (*W_Q_)(s) : s;
    nn::AttentionReport report{.with_weights = true};
    Tensor o = attention_.with_prepared(split_heads(reshape(q, {q.size(0), 1, q.size(1)}), heads_), memory.keys,
                                        memory.values, {}, weights != nullptr ? &report : nullptr);
    if (weights != nullptr) *weights = report.weights;
    o = reshape(transpose(o, 1, 2), {o.size(0), o.size(1) * o.size(3)});
    return W_O_ ? (*W_O_)(o) : o;
  }

 private:
  std::int64_t heads_;
  nn::Attention attention_;
  std::unique_ptr<Linear> W_Q_, W_K_, W_V_, W_O_;
};

}  // namespace

std::unique_ptr<Attender> make_attender(const Arm& arm, std::int64_t d, nn::Random& random) {
  const auto with = [&](std::unique_ptr<nn::ScoreFunction> score, bool projects) {
    return std::make_unique<ScoreAttender>(std::move(score), arm, d, projects, random);
  };
  switch (arm.look) {
    case Look::additive:
      return with(std::make_unique<nn::AdditiveScore>(d, d, arm.d_k, random), false);
    case Look::dot:
      return with(std::make_unique<nn::DotScore>(), true);
    case Look::general:
      return with(std::make_unique<nn::GeneralScore>(d, d, random), false);
    case Look::scaled:
    case Look::multi_head:
      return with(std::make_unique<nn::ScaledDotScore>(), true);
    case Look::none:
    case Look::transformer:
      break;
  }
  return std::make_unique<NoAttender>();
}

}  // namespace keel::lab::translate
