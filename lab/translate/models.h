#pragma once

#include "lab/translate/model.h"

// The two kinds of model, one file each; `width` is what make_model varies.
namespace keel::lab::translate {

// Bidirectional GRU, and a GRU that attends to it and is fed its own last output (Luong's input feeding). width: of
// the decoder's state and of a source word's two directions together, even.
std::unique_ptr<Model> make_recurrent(const Arm& arm, const ModelSizes& sizes, std::int64_t width, nn::Random& random);

// Two pre-norm blocks per side. width: of the hidden layer of their feed-forward parts.
std::unique_ptr<Model> make_transformer(const Arm& arm, const ModelSizes& sizes, std::int64_t width,
                                        nn::Random& random);

}  // namespace keel::lab::translate
