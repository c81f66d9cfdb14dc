#include <cmath>

#include "lab/translate/models.h"

namespace keel::lab::translate {
namespace {

using nn::Tensor;

constexpr std::int64_t kSize = 40, kBlocks = 2;  // d_model; blocks per side

// x + attention(ln_1(x)), x + attention to the source(ln_2(x)), x + W_2 gelu(W_1 ln_3(x))
class DecoderBlock : public nn::Module {
 public:
  DecoderBlock(std::int64_t heads, std::int64_t hidden, nn::Random& random)
      : ln_1_(kSize),
        ln_2_(kSize),
        ln_3_(kSize),
        self_(kSize, heads, random),
        cross_(kSize, heads, random),
        W_1_(kSize, hidden, random),
        W_2_(hidden, kSize, random) {
    child("ln_1", ln_1_);
    child("self", self_);
    child("ln_2", ln_2_);
    child("cross", cross_);
    child("ln_3", ln_3_);
    child("W_1", W_1_);
    child("W_2", W_2_);
  }

  Tensor operator()(Tensor x, const Tensor& memory, nn::AttentionReport* report) const {
    const Tensor y = ln_1_(x);
    x = x + self_(y, y, {.causal = Causal::top_left});
    x = x + cross_(ln_2_(x), memory, {}, nullptr, report);
    return x + W_2_(gelu(W_1_(ln_3_(x))));
  }

 private:
  nn::LayerNorm ln_1_, ln_2_, ln_3_;
  nn::MultiHeadAttention self_, cross_;
  nn::Linear W_1_, W_2_;
};

class Transformer : public Model {
 public:
  Transformer(const Arm& arm, const ModelSizes& sizes, std::int64_t hidden, nn::Random& random)
      : source_(sizes.source_words, kSize, random, nn::Init::xavier_uniform),
        target_(sizes.target_words, kSize, random, nn::Init::xavier_uniform),
        ln_source_(kSize),
        ln_target_(kSize),
        out_(kSize, sizes.target_words, random) {
    child("source", source_);
    child("target", target_);
    for (std::int64_t i = 0; i < kBlocks; ++i) {
      encoder_.push_back(std::make_unique<nn::TransformerBlock>(
          nn::BlockSettings{.d_model = kSize, .heads = arm.heads, .d_hidden = hidden, .init = nn::Init::xavier_uniform},
          random));
      decoder_.push_back(std::make_unique<DecoderBlock>(arm.heads, hidden, random));
      child("encoder." + std::to_string(i), *encoder_.back());
      child("decoder." + std::to_string(i), *decoder_.back());
    }
    child("ln_source", ln_source_);
    child("ln_target", ln_target_);
    child("out", out_);
  }

  Tensor logits(const Tensor& source, const Tensor& before, Tensor* weights) const override {
    return out_(decode(encode(source), before, weights));
  }

  Rows start(const Tensor& source) const override { return {encode(source)}; }

  // The words so far are reread: for sentences of this length a cache would not pay.
  Tensor step(Rows& rows, const Tensor& last) const override {
    const Tensor word = reshape(last, {last.size(0), 1});
    if (rows.size() == 1)
      rows.push_back(word);
    else
      rows[1] = appended(rows[1], word);
    const Tensor y = decode(rows[0], rows[1], nullptr);
    return out_(reshape(slice(y, 1, y.size(1) - 1, y.size(1)), {y.size(0), kSize}));
  }

 private:
  // (B, n) and (B, 1) ids as (B, n + 1)
  static Tensor appended(const Tensor& ids, const Tensor& more) {
    std::vector<std::int64_t> all;
    const auto from = ids.data<std::int64_t>(), last = more.data<std::int64_t>();
    const auto n = static_cast<std::size_t>(ids.size(1));
    for (std::size_t row = 0; row < last.size(); ++row) {
      all.insert(all.end(), from.begin() + static_cast<std::ptrdiff_t>(row * n),
                 from.begin() + static_cast<std::ptrdiff_t>((row + 1) * n));
      all.push_back(last[row]);
    }
    return Tensor::of({ids.size(0), ids.size(1) + 1}, all);
  }

  // Words of unit variance, as the positions nearly are.
  static Tensor placed(const Tensor& words) {
    return words * std::sqrt(static_cast<double>(kSize)) +
           nn::sinusoidal_positions(words.size(1), kSize, words.dtype());
  }

  Tensor encode(const Tensor& source) const {
    Tensor x = placed(source_(source));
    for (const auto& block : encoder_) x = (*block)(x);
    return ln_source_(x);
  }

  Tensor decode(const Tensor& memory, const Tensor& before, Tensor* weights) const {
    Tensor x = placed(target_(before));
    std::vector<nn::AttentionReport> reports(static_cast<std::size_t>(kBlocks));
    for (std::size_t i = 0; i < decoder_.size(); ++i) {
      reports[i].with_weights = true;
      x = (*decoder_[i])(x, memory, weights != nullptr ? &reports[i] : nullptr);
    }
    if (weights != nullptr) *weights = mean(reports.back().weights, 1);  // of the last block
    return ln_target_(x);
  }

  nn::Embedding source_, target_;
  std::vector<std::unique_ptr<nn::TransformerBlock>> encoder_;
  std::vector<std::unique_ptr<DecoderBlock>> decoder_;
  nn::LayerNorm ln_source_, ln_target_;
  nn::Linear out_;
};

}  // namespace

std::unique_ptr<Model> make_transformer(const Arm& arm, const ModelSizes& sizes, std::int64_t width,
                                        nn::Random& random) {
  return std::make_unique<Transformer>(arm, sizes, width, random);
}

}  // namespace keel::lab::translate
