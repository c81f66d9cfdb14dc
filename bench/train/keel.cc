// keel_train: a byte on stdin, then one step of training the model of run.py, then its seconds and loss on stdout, so
// that run.py can take turns between it and its competitor.
#include <chrono>
#include <cstdio>

#include "keel/nn/nn.h"

int main() {
  using namespace keel::nn;
  constexpr std::int64_t kBatch = 16, kContext = 256, kVocabulary = 96;
  GPT model({.vocabulary = kVocabulary, .context = kContext, .d_model = 256, .heads = 4, .layers = 4});
  AdamW optimiser(model.parameters(), {.lr = 3e-4, .weight_decay = 0.1});
  Random random(1, "tokens");
  std::vector<std::int64_t> tokens(kBatch * kContext);
  for (std::int64_t& token : tokens) token = random.below(kVocabulary);
  const Tensor ids = Tensor::of<std::int64_t>({kBatch, kContext}, tokens);
  for (int c = std::getchar(); c != EOF; c = std::getchar()) {  // one step per byte
    const auto start = std::chrono::steady_clock::now();
    const Tensor loss = model.loss(ids, ids);
    loss.backward();
    clip_gradients(model.parameters(), 1.0);
    optimiser.step();
    optimiser.zero_grad();
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    std::printf("%.6f %.6f\n", seconds.count(), loss.item());
    std::fflush(stdout);
  }
}
