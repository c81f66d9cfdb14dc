#pragma once

#include <functional>

#include "lab/translate/batch.h"
#include "lab/translate/model.h"

namespace keel::lab::translate {

struct TrainingSettings {
  std::int64_t steps = 0;
  std::size_t batch = 32;
  double lr = 3e-3, smoothing = 0.1, clip = 1.0;
  std::int64_t warmup = 50;
  std::int64_t points = 10;  // of the learning curve, evenly over the steps
  std::uint64_t seed = 0;    // of the order of sentences
};

// On sentences that are not trained on, under teacher forcing.
struct Validation {
  double loss = 0;     // per word, without smoothing
  double largest = 0;  // mean of a word's largest weight; 0 for a model without attention
};
Validation validate(const Model& model, std::span<const Coded> pairs);

struct CurvePoint {
  double epochs = 0;
  Validation found;
};

struct Training {
  std::vector<CurvePoint> curve;
  double seconds_per_epoch = 0;  // of the thread that trained, evaluation excluded
  double words_per_second = 0;   // target words
  std::int64_t peak_bytes = 0;   // of tensors alive during a step, parameters and optimiser included
};

// Teacher forcing, Adam with clipped gradients, a learning rate that warms up and then follows a cosine. `step`, called
// before each one, may throw to stop.
Training train(Model& model, std::span<const Coded> pairs, std::span<const Coded> validation,
               const TrainingSettings& settings, const std::function<void(std::int64_t)>& step);

}  // namespace keel::lab::translate
