#include "lab/translate/training.h"

#include <algorithm>

#include "lab/timing.h"
#include "nn/tape.h"

namespace keel::lab::translate {
namespace {

// Endless batches, drawn afresh for every epoch.
class Stream {
 public:
  Stream(std::span<const Coded> pairs, std::size_t size, std::uint64_t seed)
      : pairs_(pairs), size_(size), random_(seed, "translate/order") {}

  Batch next() {
    if (at_ == groups_.size()) {
      groups_ = grouped(pairs_, size_, &random_);
      at_ = 0;
    }
    return make_batch(pairs_, std::move(groups_[at_++]));
  }

 private:
  std::span<const Coded> pairs_;
  std::size_t size_;
  nn::Random random_;
  std::vector<std::vector<std::size_t>> groups_;
  std::size_t at_ = 0;
};

// Of the rows of `weights` (B, N, S) that have a label.
double sum_of_largest(const nn::Tensor& weights, const nn::Tensor& labels) {
  const nn::Tensor largest = max(weights, -1);
  const auto values = largest.data<float>();
  const auto label = labels.data<std::int64_t>();
  double total = 0;
  for (std::size_t i = 0; i < label.size(); ++i) {
    if (label[i] != nn::kIgnored) total += static_cast<double>(values[i]);
  }
  return total;
}

}  // namespace

Validation validate(const Model& model, std::span<const Coded> pairs) {
  const nn::NoGrad off;
  Validation total;
  double words = 0;
  for (auto& members : grouped(pairs, 128, nullptr)) {
    const Batch batch = make_batch(pairs, std::move(members));
    nn::Tensor weights;
    const nn::Tensor logits = model.logits(batch.source, batch.before, &weights);
    const auto n = static_cast<double>(batch.words);
    total.loss += n * cross_entropy(logits, batch.labels).item();
    if (weights.given()) total.largest += sum_of_largest(weights, batch.labels);
    words += n;
  }
  return {total.loss / words, total.largest / words};
}

Training train(Model& model, std::span<const Coded> pairs, std::span<const Coded> validation,
               const TrainingSettings& settings, const std::function<void(std::int64_t)>& step_begins) {
  Training found;
  const auto parameters = model.parameters();
  nn::Adam adam(parameters, {.lr = settings.lr, .beta2 = 0.98});
  Stream stream(pairs, settings.batch, settings.seed);
  double seconds = 0, words = 0, sentences = 0;
  for (std::int64_t step = 1; step <= settings.steps; ++step) {
    step_begins(step);
    nn::watch_memory();
    const double begin = thread_seconds();
    const Batch batch = stream.next();
    adam.set_lr(settings.lr * nn::warmup_cosine(step, settings.warmup, settings.steps, 0.02));
    adam.zero_grad();
    cross_entropy(model.logits(batch.source, batch.before), batch.labels, nn::kIgnored, settings.smoothing).backward();
    nn::clip_gradients(parameters, settings.clip);
    adam.step();
    seconds += thread_seconds() - begin;
    found.peak_bytes = std::max(found.peak_bytes, nn::memory_use().most);
    words += static_cast<double>(batch.words);
    sentences += static_cast<double>(batch.members.size());
    if (step * settings.points / settings.steps != (step - 1) * settings.points / settings.steps) {
      found.curve.push_back({sentences / static_cast<double>(pairs.size()), validate(model, validation)});
    }
  }
  model.zero_grad();
  found.seconds_per_epoch = seconds * static_cast<double>(pairs.size()) / sentences;
  found.words_per_second = words / seconds;
  return found;
}

}  // namespace keel::lab::translate
