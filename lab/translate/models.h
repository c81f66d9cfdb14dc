#pragma once

#include "lab/translate/model.h"

// The two kinds of model, a file each; `width` is what make_model varies.
namespace keel::lab::translate {

// Bidirectional GRU, and a GRU that looks at it and is fed what it last made of that (Luong's input feeding). width: of
// the decoder's state and of a source word's two directions together, even.
std::unique_ptr<Model> make_recurrent(const Arm& arm, const ModelSizes& sizes, std::int64_t width, nn::Random& random);

// Two pre-norm blocks a side. width: of the hidden layer of their feed-forward parts.
std::unique_ptr<Model> make_transformer(const Arm& arm, const ModelSizes& sizes, std::int64_t width,
                                        nn::Random& random);

}  // namespace keel::lab::translate
