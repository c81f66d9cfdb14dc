#pragma once

// Score functions: how attention compares a query with a key. Each expresses its scores in terms of the attention node,
// q·k, a scale and an additive part, so that one layer serves all, with masks, weights and statistics.
//
//   Attention layer(std::make_unique<AdditiveScore>(d_q, d_k, d_a, random));
//   Tensor o = layer(q, k, v, {.k_lengths = lengths});

#include <memory>

#include "keel/nn/attention.h"
#include "keel/nn/module.h"
#include "keel/nn/random.h"

namespace keel::nn {

// The score of query i and key j is scale_i·(q_i·k_j) + bias_ij.
struct Scored {
  Tensor q{}, k{};                // (B, H, N_q, d), (B, H, N_k, d)
  std::optional<double> scale{};  // 1/√d if neither this nor the tensor is given
  Tensor scale_tensor{};
  Tensor bias{};  // (B, H, N_q, N_k)
};

class KEEL_API ScoreFunction : public Module {
 public:
  // q (B, H, N_q, d_q), k (B, H, N_k, d_k)
  virtual Scored operator()(const Tensor& q, const Tensor& k) const = 0;

  // The same in two halves, for a decoder whose queries come one at a time: what depends on the keys alone is
  // computed once. score(q, prepared(k)) is (*this)(q, k).
  virtual Tensor prepared(const Tensor& k) const { return k; }
  virtual Scored score(const Tensor& q, const Tensor& prepared_k) const { return (*this)(q, prepared_k); }
};

// Bahdanau: vᵀ tanh(W_s s + W_h h). Never holds N_q × N_k × d_a.
class KEEL_API AdditiveScore : public ScoreFunction {
 public:
  AdditiveScore(std::int64_t d_q, std::int64_t d_k, std::int64_t d_a, Random& random);
  Scored operator()(const Tensor& q, const Tensor& k) const override { return score(q, prepared(k)); }
  Tensor prepared(const Tensor& k) const override;
  Scored score(const Tensor& q, const Tensor& prepared_k) const override;
  Tensor W_s, W_h, v;  // (d_a, d_q), (d_a, d_k), (d_a)
};

// Luong: sᵀ h
class KEEL_API DotScore : public ScoreFunction {
 public:
  Scored operator()(const Tensor& q, const Tensor& k) const override;
};

// Luong: sᵀ W h
class KEEL_API GeneralScore : public ScoreFunction {
 public:
  GeneralScore(std::int64_t d_q, std::int64_t d_k, Random& random);
  Scored operator()(const Tensor& q, const Tensor& k) const override { return score(q, prepared(k)); }
  Tensor prepared(const Tensor& k) const override;
  Scored score(const Tensor& q, const Tensor& prepared_k) const override;
  Tensor W;  // (d_q, d_k)
};

// Luong: vᵀ tanh(W [s; h])
class KEEL_API ConcatScore : public ScoreFunction {
 public:
  ConcatScore(std::int64_t d_q, std::int64_t d_k, std::int64_t d_a, Random& random);
  Scored operator()(const Tensor& q, const Tensor& k) const override;
  Tensor W, v;  // (d_a, d_q + d_k), (d_a)
};

// Luong: (W s)_j, which depends only on the key's position
class KEEL_API LocationScore : public ScoreFunction {
 public:
  LocationScore(std::int64_t d_q, std::int64_t longest, Random& random);
  Scored operator()(const Tensor& q, const Tensor& k) const override;
  Tensor W;  // (longest, d_q)
};

// Vaswani: q·k/√d_k
class KEEL_API ScaledDotScore : public ScoreFunction {
 public:
  Scored operator()(const Tensor& q, const Tensor& k) const override;
};

// q·k/τ with one learned τ per head, initially √d_k
class KEEL_API TemperatureScore : public ScoreFunction {
 public:
  TemperatureScore(std::int64_t heads, std::int64_t d_k);
  Scored operator()(const Tensor& q, const Tensor& k) const override;
  Tensor tau;  // (heads)
};

// q·k·exp(w_h·q + b_h)/√d_k: each query has its own sharpness, initially 1
class KEEL_API QueryScaleScore : public ScoreFunction {
 public:
  QueryScaleScore(std::int64_t heads, std::int64_t d_k);
  Scored operator()(const Tensor& q, const Tensor& k) const override;
  Tensor w, b;  // (heads, d_k), (heads)
};

// A deliberately wrong scale: none, or 1/√d_model instead of 1/√d_k.
class KEEL_API WrongScaleScore : public ScoreFunction {
 public:
  static std::unique_ptr<WrongScaleScore> none();
  static std::unique_ptr<WrongScaleScore> by_model_size(std::int64_t d_model);
  Scored operator()(const Tensor& q, const Tensor& k) const override;

 private:
  explicit WrongScaleScore(double scale) : scale_(scale) {}
  double scale_;
};

// softmax(score(q, k))·v with any score function.
class KEEL_API Attention : public Module {
 public:
  explicit Attention(std::unique_ptr<ScoreFunction> score);

  // (B, H, N, d), or (B, N, d) for a single head. `options` may set everything but a scale, which belongs to the score
  // function.
  Tensor operator()(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& options = {},
                    AttentionReport* report = nullptr) const;
  // The same with keys that the score function has prepared (ScoreFunction::prepared).
  Tensor with_prepared(const Tensor& q, const Tensor& prepared_k, const Tensor& v, const AttentionOptions& options = {},
                       AttentionReport* report = nullptr) const;
  ScoreFunction& score() const { return *score_; }

 private:
  std::unique_ptr<ScoreFunction> score_;
};

// softmax(q kᵀ/√d_k)·v
class KEEL_API ScaledDotProductAttention : public Attention {
 public:
  ScaledDotProductAttention() : Attention(std::make_unique<ScaledDotScore>()) {}
};

}  // namespace keel::nn
