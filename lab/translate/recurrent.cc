#include "lab/translate/attender.h"
#include "lab/translate/models.h"

namespace keel::lab::translate {
namespace {

using nn::concat;
using nn::Tensor;

constexpr std::int64_t kEmbedding = 32;

class Recurrent : public Model {
 public:
  Recurrent(const Arm& arm, const ModelSizes& sizes, std::int64_t d, nn::Random& random)
      : d_(d),
        source_(sizes.source_words, kEmbedding, random),
        target_(sizes.target_words, kEmbedding, random),
        encoder_(kEmbedding, d / 2, random, {.bidirectional = true}),
        bridge_(d, d, random),
        decoder_(kEmbedding + d, d, random),
        attender_(make_attender(arm, d, random)),
        combine_(2 * d, d, random),
        out_(d, sizes.target_words, random) {
    child("source", source_);
    child("target", target_);
    child("encoder", encoder_);
    child("bridge", bridge_);
    child("decoder", decoder_);
    child("attender", *attender_);
    child("combine", combine_);
    child("out", out_);
  }

  Tensor logits(const Tensor& source, const Tensor& before, Tensor* weights) const override {
    State state = begin(source);
    const std::int64_t batch = before.size(0), n = before.size(1);
    const Tensor words = target_(before);
    std::vector<Tensor> made, looked;
    for (std::int64_t i = 0; i < n; ++i) {
      Tensor w;
      advance(state, reshape(slice(words, 1, i, i + 1), {batch, kEmbedding}), weights != nullptr ? &w : nullptr);
      made.push_back(reshape(state.made, {batch, 1, d_}));
      if (w.given()) looked.push_back(reshape(mean(w, 1), {batch, 1, w.size(3)}));
    }
    if (weights != nullptr) *weights = looked.empty() ? Tensor() : concat(looked, 1);
    return out_(concat(made, 1));
  }

  Rows start(const Tensor& source) const override {
    const State state = begin(source);
    return {state.s, state.made, state.memory.keys, state.memory.values};
  }

  Tensor step(Rows& rows, const Tensor& last) const override {
    State state{rows[0], rows[1], {rows[2], rows[3]}};
    advance(state, target_(last), nullptr);
    rows[0] = state.s;
    rows[1] = state.made;
    return out_(state.made);
  }

 private:
  struct State {
    Tensor s, made;  // (B, d): the decoder's state, and its last output from that and the context
    Attender::Memory memory;
  };

  State begin(const Tensor& source) const {
    const auto encoded = encoder_(source_(source));
    const std::int64_t batch = source.size(0);
    const Tensor last = reshape(transpose(encoded.h, 0, 1), {batch, d_});
    return {tanh(bridge_(last)), Tensor::zeros({batch, d_}, last.dtype()), attender_->remember(encoded.output, last)};
  }

  void advance(State& state, const Tensor& word, Tensor* weights) const {
    state.s = decoder_.step(concat({word, state.made}, 1), state.s);
    const Tensor context = attender_->look(state.s, state.memory, weights);
    state.made = tanh(combine_(concat({context, state.s}, 1)));
  }

  std::int64_t d_;
  nn::Embedding source_, target_;
  nn::GRU encoder_;
  nn::Linear bridge_;
  nn::GRU decoder_;
  std::unique_ptr<Attender> attender_;
  nn::Linear combine_, out_;
};

}  // namespace

std::unique_ptr<Model> make_recurrent(const Arm& arm, const ModelSizes& sizes, std::int64_t width, nn::Random& random) {
  return std::make_unique<Recurrent>(arm, sizes, width, random);
}

}  // namespace keel::lab::translate
