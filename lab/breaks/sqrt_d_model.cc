#include "lab/breaks/trained_sizes.h"

namespace keel::lab {

Break sqrt_d_model() {
  return {
      .name = "sqrt-d-model",
      .scene =
          "A small transformer with d_model = 32 is trained on key–value lookup, with heads of size d_k = 4, 16 and "
          "64.",
      .summary = "The scores are divided by the square root of another size; d_model is 32.",
      .suspect = "the scores are divided by √d_model instead of √d_k",
      .before = "scores = q @ k.T / sqrt(d_k)",
      .after = "scores = q @ k.T / sqrt(d_model)",
      .questions = {{"variance-4", "the variance of a row's scores before training, d_k = 4"},
                    {"largest-weight-4", "the largest weight of a row before training, d_k = 4"},
                    {"entropy-4", "the entropy of a row before training, d_k = 4"},
                    {"largest-weight-64", "the largest weight of a row before training, d_k = 64"},
                    {"steps-4", "the steps until the loss is half of chance, d_k = 4"},
                    {"accuracy-4", "the share of right answers after 300 steps, d_k = 4"}},
      .run =
          [](Work& work, Version version) {
            const TrainedSizes runs(
                version == Version::healthy
                    ? nn::ScoreMaker()
                    : [](auto, auto) { return nn::WrongScaleScore::by_model_size(recall::kModel); },
                work);
            return Seen{{runs.at_start(4, &Snapshot::logit_var), runs.at_start(4, &Snapshot::max_weight),
                         runs.at_start(4, &Snapshot::entropy), runs.at_start(64, &Snapshot::max_weight), runs.steps(4),
                         runs.accuracy(4)},
                        runs.figures()};
          },
      .hints = {"Compare the largest weights at d_k = 4, 16 and 64 before training. Should they depend on d_k?",
                "With h heads of size d_k, d_model is often h·d_k: the scores come out √h times too small.",
                "Here the heads do not split d_model between them, so d_k can even be larger. Compare d_k = 4 with d_k "
                "= 64."},
      .cause =
          "q·k adds up d_k products, so its standard deviation is √d_k, whatever d_model is. Divided by √d_model, "
          "heads smaller than the model begin flatter than they should, larger ones sharper. Training makes up for a "
          "factor of this size: the weights grow until the scores fit.",
      .fix = "Divide by the square root of the head size, q.shape[-1], not of d_model.",
  };
}

}  // namespace keel::lab
