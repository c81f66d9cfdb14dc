#pragma once

#include <memory>

#include "keel/nn/nn.h"
#include "lab/translate/arms.h"

namespace keel::lab::translate {

// How the recurrent decoder attends to its source: the only part in which the arms differ.
class Attender : public nn::Module {
 public:
  struct Memory {
    nn::Tensor keys, values;  // (B, heads, S, d): what depends on the source alone
  };
  // of the encoder's states (B, S, d) and its last ones concatenated (B, d)
  virtual Memory remember(const nn::Tensor& states, const nn::Tensor& last) const = 0;

  // The context (B, d) of a decoder in state s (B, d). `weights`, if given, gets (B, heads, 1, S).
  virtual nn::Tensor look(const nn::Tensor& s, const Memory& memory, nn::Tensor* weights) const = 0;
};

// States of the encoder and of the decoder have `d` components each.
std::unique_ptr<Attender> make_attender(const Arm& arm, std::int64_t d, nn::Random& random);

}  // namespace keel::lab::translate
