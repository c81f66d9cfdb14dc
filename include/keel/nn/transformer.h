#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "keel/nn/layers.h"
#include "keel/nn/scores.h"

namespace keel::nn {

// Keys and values of the tokens seen so far, so that a new token costs only one row. For use without gradients.
class KEEL_API KVCache {
 public:
  explicit KVCache(std::int64_t capacity);
  std::int64_t length() const { return length_; }
  std::int64_t capacity() const { return capacity_; }

  // Appends k and v (B, H, n, d); returns all of them, as views. Raises if they do not fit.
  std::pair<Tensor, Tensor> append(const Tensor& k, const Tensor& v);

 private:
  std::int64_t capacity_, length_ = 0;
  Tensor k_, v_;
};

// A score function for `heads` heads of size d_k.
using ScoreMaker = std::function<std::unique_ptr<ScoreFunction>(std::int64_t heads, std::int64_t d_k)>;

struct MultiHeadAttentionSettings {
  bool bias = true;
  Init init = Init::xavier_uniform;
  Projection projection = Projection::fused;  // what `init` counts as one matrix
  ScoreMaker score{};                         // scaled dot by default
  double dropout = 0.0;                       // on the weights
  std::shared_ptr<Random> dropout_random{};   // needed for dropout
};

// Concat(head_1 … head_h) W_O,  head_i = attention(x W_Qi, y W_Ki, y W_Vi)
class KEEL_API MultiHeadAttention : public Module {
 public:
  MultiHeadAttention(std::int64_t d_model, std::int64_t heads, Random& random,
                     const MultiHeadAttentionSettings& settings = {});

  // x (B, N_q, d_model) attends over y (B, N_k, d_model); over itself when they are the same tensor. With a cache, the
  // keys and values of y are appended to it and x attends over all it holds (use Causal::bottom_right).
  Tensor operator()(const Tensor& x, const Tensor& y, const AttentionOptions& options = {}, KVCache* cache = nullptr,
                    AttentionReport* report = nullptr) const;

  Linear W_Q, W_K, W_V, W_O;

 private:
  std::int64_t heads_;
  Attention attention_;
  Dropout dropout_;
};

struct BlockSettings {
  std::int64_t d_model = 64, heads = 4;
  std::int64_t d_hidden = 0;  // of the feed-forward part; 4·d_model if 0
  Init init = Init::gpt2;
  double residual_scale = 1.0;  // on the initial weights that write to the residual stream (GPT-2: 1/√(2·layers))
  ScoreMaker score{};
  double dropout = 0.0;
  std::shared_ptr<Random> dropout_random{};
};

// Pre-norm transformer block:  x + attention(ln_1(x)),  then  x + W_2 gelu(W_1 ln_2(x))
class KEEL_API TransformerBlock : public Module {
 public:
  TransformerBlock(const BlockSettings& settings, Random& random);
  Tensor operator()(const Tensor& x, const AttentionOptions& options = {}, KVCache* cache = nullptr,
                    AttentionReport* report = nullptr) const;

  LayerNorm ln_1;
  MultiHeadAttention attn;
  LayerNorm ln_2;
  Linear W_1, W_2;

 private:
  Dropout dropout_;
};

enum class Positions { learned, sinusoidal };

struct GPTSettings {
  std::int64_t vocabulary = 256, context = 64;
  std::int64_t d_model = 64, heads = 4, layers = 2;
  Positions positions = Positions::learned;
  ScoreMaker score{};
  double dropout = 0.0;
  std::uint64_t seed = 0;  // of the initial weights and of dropout
};

// A decoder-only transformer like GPT-2: token and position embeddings, pre-norm blocks, a last norm, logits from the
// token embedding.
class KEEL_API GPT : public Module {
 public:
  explicit GPT(const GPTSettings& settings);

  // ids i64 (B, N), N ≤ context → logits (B, N, vocabulary). `reports`, if given, gets one entry per layer.
  Tensor operator()(const Tensor& ids, std::vector<AttentionReport>* reports = nullptr) const;
  // Mean cross-entropy; labels i64 (B, N), kIgnored for none.
  Tensor loss(const Tensor& ids, const Tensor& labels) const;

  // `count` more tokens after `prompt`, drawn from softmax(logits/temperature); at 0 the likeliest. Uses a KV cache,
  // which restarts from the later half when the context is full.
  std::vector<std::int64_t> generate(std::vector<std::int64_t> prompt, std::int64_t count, double temperature,
                                     Random& random) const;

  const GPTSettings& settings() const { return settings_; }
  // For dropout; seek it to make a step a function of its number.
  Random& dropout_random() const { return *dropout_random_; }

  Embedding tokens;
  LayerNorm ln_f;

 private:
  GPT(const GPTSettings& settings, Random random);
  Tensor forward(const Tensor& ids, std::vector<KVCache>* caches, std::vector<AttentionReport>* reports) const;

  GPTSettings settings_;
  std::shared_ptr<Random> dropout_random_;
  std::unique_ptr<Embedding> positions_;  // learned
  Tensor fixed_positions_;                // sinusoidal
  std::vector<std::unique_ptr<TransformerBlock>> blocks_;
  Dropout dropout_;
};

}  // namespace keel::nn
