#pragma once

#include <keel/nn/nn.h>

#include <stdexcept>
#include <string>

#include "text.h"

// What a run is: the same settings, text and seed give the same curve, to the bit.
struct RunSettings {
  std::int64_t layers = 4, heads = 4, d_model = 128, context = 128, batch = 16, steps = 1000;
  double lr = 1e-3, dropout = 0.0;
  std::uint64_t seed = 1;
};

// Training failed: a loss or a weight is no longer a number.
struct Diverged : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// A model in training. Every step is a function of its number and of what came before, so that a run can stop after any
// step and continue from its checkpoint as if it had not.
class Run {
 public:
  // Raises if the text is too short, and std::invalid_argument if this machine's memory is too small.
  Run(const RunSettings& settings, const Text& text);

  std::int64_t step() const { return optimiser_.steps(); }
  std::int64_t tokens_per_step() const { return settings_.batch * settings_.context; }
  double train_step();     // the loss of its batch; raises Diverged
  double held_out_loss();  // over the last tenth of the text, which training does not see
  std::string sample(std::int64_t characters, double temperature, std::uint64_t number);
  double bigram_loss() const;

  void save(const std::string& path) const;  // raises Diverged, and leaves the old file
  void load(const std::string& path);        // raises if the checkpoint is from another run

 private:
  std::string description() const;

  RunSettings settings_;
  const Text& text_;
  std::int64_t split_;  // training text is before it
  keel::nn::GPT model_;
  keel::nn::AdamW optimiser_;
};
