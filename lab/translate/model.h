#pragma once

#include <memory>

#include "keel/nn/nn.h"
#include "lab/translate/arms.h"

namespace keel::lab::translate {

// What a decoder carries from one word to the next: tensors with one row per sentence, chosen by the model.
using Rows = std::vector<nn::Tensor>;

// A sequence-to-sequence model. Sentences of one batch have one length in the source language, so nothing there is
// padded and nothing needs a mask; what a target is padded with comes after its end.
class Model : public nn::Module {
 public:
  // Logits (B, N, target words) of each target word, given the source (B, S) and the words before (B, N), the first of
  // which starts the sentence. `weights`, if given, gets what each word attended to: (B, N, S), the mean over heads;
  // not given for a model without attention.
  virtual nn::Tensor logits(const nn::Tensor& source, const nn::Tensor& before,
                            nn::Tensor* weights = nullptr) const = 0;

  // The same word by word, without gradients: before the first word, and after each (B).
  virtual Rows start(const nn::Tensor& source) const = 0;
  virtual nn::Tensor step(Rows& rows, const nn::Tensor& last) const = 0;  // logits (B, target words)
};

struct ModelSizes {
  std::int64_t source_words = 0, target_words = 0;
  std::int64_t parameters = 0;  // approximated as closely as the arm allows
};

// Of `sizes.parameters` parameters within kBudget: the width of the layers compensates for what an arm's attention
// takes.
inline constexpr double kBudget = 0.05;
std::unique_ptr<Model> make_model(const Arm& arm, const ModelSizes& sizes, nn::Random& random);

}  // namespace keel::lab::translate
