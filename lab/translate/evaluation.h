#pragma once

#include "lab/translate/task.h"

namespace keel::lab::translate {

struct Quality {
  double bleu = 0;   // tokenisation none: sentences are words already
  double exact = 0;  // share of sentences that are the reference, word for word
};

// How well `pairs` are translated; by greedy search if `beam` is 1.
Quality quality(const Model& model, const Task& task, const std::vector<Pair>& words, std::span<const Coded> pairs,
                std::int64_t beam = 1);

// What a model attends to under teacher forcing.
struct Looking {
  double aligned = 0;   // mean weight on the words that are known to be translated
  double even = 0;      // the same of even weights
  double sharpest = 0;  // mean of the largest weight
};
// Zeros for a model without attention; `aligned` and `even` are 0 if no alignment is known.
Looking looking(const Model& model, const std::vector<Pair>& words, std::span<const Coded> pairs);

// What the words of a target attend to: (N, S), both ends included. Not given for a model without attention.
nn::Tensor weights_of(const Model& model, const Coded& pair);

}  // namespace keel::lab::translate
