#include "keel/nn/transformer.h"

#include <algorithm>
#include <cmath>
#include <tuple>

#include "nn/check.h"
#include "nn/tape.h"

namespace keel::nn {
namespace {

// (B, N, H·d) → (B, H, N, d), a view
Tensor split_heads(const Tensor& x, std::int64_t heads) {
  return transpose(reshape(x, {x.size(0), x.size(1), heads, x.size(2) / heads}), 1, 2);
}

// and back
Tensor join_heads(const Tensor& x) {
  const Tensor rows = transpose(x, 1, 2);
  return reshape(rows, {rows.size(0), rows.size(1), rows.size(2) * rows.size(3)});
}

std::int64_t checked_heads(std::int64_t d_model, std::int64_t heads) {
  if (d_model < 1 || heads < 1 || d_model % heads != 0) {
    refuse("MultiHeadAttention", "heads: expected a divisor of d_model ", d_model, ", got ", heads);
  }
  return heads;
}

std::unique_ptr<ScoreFunction> make_score(const ScoreMaker& maker, std::int64_t heads, std::int64_t d_k) {
  return maker ? maker(heads, d_k) : std::make_unique<ScaledDotScore>();
}

void check_sequence(const char* operation, const char* name, const Tensor& x, std::int64_t d) {
  check_given(operation, name, x);
  if (x.rank() != 3 || x.size(2) != d) {
    refuse(operation, name, ": expected shape (B, N, ", d, "), got ", shape_text(x.shape()));
  }
}

}  // namespace

KVCache::KVCache(std::int64_t capacity) : capacity_(capacity) {
  if (capacity < 1) refuse("KVCache", "capacity: expected at least 1, got ", capacity);
}

std::pair<Tensor, Tensor> KVCache::append(const Tensor& k, const Tensor& v) {
  if (on_tape({k, v})) refuse("KVCache", "k and v: expected tensors off the tape (use NoGrad), got some on it");
  const std::int64_t n = k.size(2);
  if (n > capacity_ - length_) {
    refuse("KVCache", "k: expected at most ", capacity_ - length_, " more rows, of a capacity of ", capacity_, ", got ",
           n);
  }
  if (!k_.given()) {
    k_ = Tensor::zeros({k.size(0), k.size(1), capacity_, k.size(3)}, k.dtype());
    v_ = Tensor::zeros({v.size(0), v.size(1), capacity_, v.size(3)}, v.dtype());
  }
  for (const auto& [all, more] : {std::pair{k_, k}, std::pair{v_, v}}) {
    check_shape("KVCache", "k and v", more, {all.size(0), all.size(1), n, all.size(3)});
    add_in_place(slice(all, 2, length_, length_ + n), more);  // to zeros: nothing is here yet
  }
  length_ += n;
  return {slice(k_, 2, 0, length_), slice(v_, 2, 0, length_)};
}

MultiHeadAttention::MultiHeadAttention(std::int64_t d_model, std::int64_t heads, Random& random,
                                       const MultiHeadAttentionSettings& s)
    : W_Q(d_model, d_model, random,
          {.bias = s.bias,
           .init = s.init,
           .fans = projection_fans(s.projection, d_model, d_model, checked_heads(d_model, heads))}),
      W_K(d_model, d_model, random,
          {.bias = s.bias, .init = s.init, .fans = projection_fans(s.projection, d_model, d_model, heads)}),
      W_V(d_model, d_model, random,
          {.bias = s.bias, .init = s.init, .fans = projection_fans(s.projection, d_model, d_model, heads)}),
      W_O(d_model, d_model, random, {.bias = s.bias, .init = s.init}),
      heads_(heads),
      attention_(make_score(s.score, heads, d_model / heads)),
      dropout_(s.dropout, s.dropout_random) {
  child("W_Q", W_Q);
  child("W_K", W_K);
  child("W_V", W_V);
  child("W_O", W_O);
  child("attention", attention_);
  child("dropout", dropout_);
}

Tensor MultiHeadAttention::operator()(const Tensor& x, const Tensor& y, const AttentionOptions& options, KVCache* cache,
                                      AttentionReport* report) const {
  check_sequence("MultiHeadAttention", "x", x, W_Q.weight.size(1));
  check_sequence("MultiHeadAttention", "y", y, W_K.weight.size(1));
  const Tensor q = split_heads(W_Q(x), heads_);
  Tensor k = split_heads(W_K(y), heads_), v = split_heads(W_V(y), heads_);
  if (cache != nullptr) std::tie(k, v) = cache->append(k, v);
  AttentionOptions all = options;
  if (dropout_.active()) {
    all.dropout = dropout_.p();
    all.seed = dropout_.random().bits();
  }
  return W_O(join_heads(attention_(q, k, v, all, report)));
}

TransformerBlock::TransformerBlock(const BlockSettings& s, Random& random)
    : ln_1(s.d_model),
      attn(s.d_model, s.heads, random,
           {.init = s.init,
            .projection = Projection::square,
            .score = s.score,
            .dropout = s.dropout,
            .dropout_random = s.dropout_random}),
      ln_2(s.d_model),
      W_1(s.d_model, s.d_hidden > 0 ? s.d_hidden : 4 * s.d_model, random, {.init = s.init}),
      W_2(s.d_hidden > 0 ? s.d_hidden : 4 * s.d_model, s.d_model, random, {.init = s.init}),
      dropout_(s.dropout, s.dropout_random) {
  child("ln_1", ln_1);
  child("attn", attn);
  child("ln_2", ln_2);
  child("W_1", W_1);
  child("W_2", W_2);
  child("dropout", dropout_);
  for (const Linear* linear : {&attn.W_O, &W_2}) {
    for (float& w : linear->weight.data<float>()) w *= static_cast<float>(s.residual_scale);
  }
}

Tensor TransformerBlock::operator()(const Tensor& x, const AttentionOptions& options, KVCache* cache,
                                    AttentionReport* report) const {
  const Tensor h = ln_1(x);
  const Tensor y = x + dropout_(attn(h, h, options, cache, report));
  return y + dropout_(W_2(gelu(W_1(ln_2(y)))));
}

GPT::GPT(const GPTSettings& settings) : GPT(settings, Random(settings.seed, "initial weights")) {}

GPT::GPT(const GPTSettings& s, Random random)
    : tokens(s.vocabulary, s.d_model, random, Init::gpt2),
      ln_f(s.d_model),
      settings_(s),
      dropout_random_(std::make_shared<Random>(s.seed, "dropout")),
      dropout_(s.dropout, dropout_random_) {
  if (s.context < 1 || s.layers < 1) {
    refuse("GPT", "context and layers: expected at least 1, got ", s.context, " and ", s.layers);
  }
  child("tokens", tokens);
  if (s.positions == Positions::learned) {
    positions_ = std::make_unique<Embedding>(s.context, s.d_model, random, Init::gpt2);
    child("positions", *positions_);
  } else {
    fixed_positions_ = sinusoidal_positions(s.context, s.d_model);
  }
  const BlockSettings block{.d_model = s.d_model,
                            .heads = s.heads,
                            .residual_scale = 1.0 / std::sqrt(2.0 * static_cast<double>(s.layers)),
                            .score = s.score,
                            .dropout = s.dropout,
                            .dropout_random = dropout_random_};
  for (std::int64_t i = 0; i < s.layers; ++i) {
    blocks_.push_back(std::make_unique<TransformerBlock>(block, random));
    child("h." + std::to_string(i), *blocks_.back());
  }
  child("ln_f", ln_f);
  child("dropout", dropout_);
}

Tensor GPT::forward(const Tensor& ids, std::vector<KVCache>* caches, std::vector<AttentionReport>* reports) const {
  check_dtype("GPT", "ids", ids, DType::i64);
  const std::int64_t before = caches != nullptr ? caches->front().length() : 0;
  if (ids.rank() != 2 || ids.size(1) > settings_.context - before) {
    refuse("GPT", "ids: expected shape (B, N) with N at most ", settings_.context - before, ", got ",
           shape_text(ids.shape()));
  }
  const std::int64_t end = before + ids.size(1);
  const Tensor table = positions_ != nullptr ? positions_->weight : fixed_positions_.to(tokens.weight.dtype());
  Tensor x = dropout_(tokens(ids) + slice(table, 0, before, end));
  if (reports != nullptr) reports->resize(blocks_.size());
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    x = (*blocks_[i])(x, {.causal = Causal::bottom_right}, caches != nullptr ? &(*caches)[i] : nullptr,
                      reports != nullptr ? &(*reports)[i] : nullptr);
  }
  return linear(ln_f(x), tokens.weight);
}

Tensor GPT::operator()(const Tensor& ids, std::vector<AttentionReport>* reports) const {
  return forward(ids, nullptr, reports);
}

Tensor GPT::loss(const Tensor& ids, const Tensor& labels) const { return cross_entropy((*this)(ids), labels); }

std::vector<std::int64_t> GPT::generate(std::vector<std::int64_t> prompt, std::int64_t count, double temperature,
                                        Random& random) const {
  if (prompt.empty()) refuse("generate", "prompt: expected at least one token, got none");
  if (!(temperature >= 0.0)) refuse("generate", "temperature: expected at least 0, got ", temperature);
  const NoGrad off;
  std::vector<std::int64_t> all = std::move(prompt);
  std::vector<KVCache> caches;
  for (std::int64_t made = 0; made < count; ++made) {
    std::vector<std::int64_t> next{all.back()};
    if (caches.empty() || caches.front().length() == settings_.context) {
      caches.clear();
      for (std::int64_t i = 0; i < settings_.layers; ++i) caches.emplace_back(settings_.context);
      const std::int64_t kept = made == 0 ? settings_.context : (settings_.context + 1) / 2;
      next.assign(all.end() - std::min(std::ssize(all), kept), all.end());
    }
    const Tensor logits = forward(Tensor::of<std::int64_t>({1, std::ssize(next)}, next), &caches, nullptr);
    std::vector<double> p = slice(logits, 1, logits.size(1) - 1, logits.size(1)).values();
    const auto best = std::max_element(p.begin(), p.end());
    std::int64_t token = best - p.begin();
    if (temperature > 0.0) {
      const double m = *best;
      double l = 0;
      for (double& value : p) l += value = std::exp((value - m) / temperature);
      double left = random.uniform() * l;
      token = 0;
      while (token + 1 < std::ssize(p) && left >= p[static_cast<std::size_t>(token)]) {
        left -= p[static_cast<std::size_t>(token++)];
      }
    }
    all.push_back(token);
  }
  return all;
}

}  // namespace keel::nn
