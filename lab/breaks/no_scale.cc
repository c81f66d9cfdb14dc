#include "lab/breaks/trained_sizes.h"

namespace keel::lab {

Break no_scale() {
  return {
      .name = "no-scale",
      .scene = "A small transformer is trained on key–value lookup, with heads of size d_k = 4, 16 and 64.",
      .summary = "The scores go into the softmax as they are; a small transformer is trained on key–value lookup.",
      .suspect = "the scores are not divided by anything",
      .before = "scores = q @ k.T / sqrt(d_k)",
      .after = "scores = q @ k.T",
      .questions = {{"variance", "the variance of a row's scores before training, d_k = 64"},
                    {"largest-weight", "the largest weight of a row before training, d_k = 64"},
                    {"gradient", "the norm of the gradient at W_Q at the first step, d_k = 64"},
                    {"steps-64", "the steps until the loss is half of chance, d_k = 64"},
                    {"accuracy-64", "the share of right answers after 300 steps, d_k = 64"},
                    {"steps-16", "the steps until the loss is half of chance, d_k = 16"},
                    {"steps-4", "the steps until the loss is half of chance, d_k = 4"}},
      .run =
          [](Work& work, Version version) {
            const TrainedSizes runs(
                version == Version::healthy ? nn::ScoreMaker() : [](auto, auto) { return nn::WrongScaleScore::none(); },
                work);
            return Seen{
                {runs.at_start(64, &Snapshot::logit_var), runs.at_start(64, &Snapshot::max_weight),
                 runs.at_start(64, &Snapshot::dw_q), runs.steps(64), runs.accuracy(64), runs.steps(16), runs.steps(4)},
                runs.figures()};
          },
      .hints = {"Look at the variance of a row's scores. Which of the model's sizes is it close to?",
                "A dot product of d_k independent products of unit variance has variance d_k.",
                "dQ = scale · dS · K: the scale that is gone from the scores is gone from the gradient as well."},
      .cause =
          "Without the division the scores have d_k times the variance, so rows begin sharply focused on keys picked "
          "by chance, and learning takes more steps. The gradient does not vanish: individual rows let little through, "
          "but what comes through is no longer divided by √d_k either. At d_k = 4 the factor is only 2, which is why "
          "small models hide this.",
      .fix = "Divide by √d_k: the default scale of keel::attention, ScaledDotScore in keel::nn.",
  };
}

}  // namespace keel::lab
