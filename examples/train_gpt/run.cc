#include "run.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <sstream>
#include <stdexcept>

using namespace keel::nn;

namespace {

// `s`, if such a run is possible. The memory counted is a lower bound: weights, gradients and Adam's two moments; for
// each token of a batch ten times d_model per layer, and the logits with their gradient.
const RunSettings& checked(const RunSettings& s, const Text& text) {
  if (text.size() / 10 - 2 < s.context) {
    throw std::runtime_error("the text is too short: expected ten times the context of " + std::to_string(s.context) +
                             " and 20 characters more, got " + std::to_string(text.size()));
  }
  const auto d = static_cast<double>(s.d_model), layers = static_cast<double>(s.layers);
  const auto words = static_cast<double>(text.vocabulary()), context = static_cast<double>(s.context);
  constexpr double kFloat = 4;
  const double model = 4 * kFloat * (12 * layers * d * d + (words + context) * d);
  const double row = kFloat * context * (10 * layers * d + 2 * words);
  const double memory = static_cast<double>(::sysconf(_SC_PHYS_PAGES)) * static_cast<double>(::sysconf(_SC_PAGESIZE));
  const auto gib = [](double bytes) {
    return std::to_string(std::llround(std::min(bytes / (1 << 30), 1e15))) + " GiB";
  };
  if (model + row > memory) {
    throw std::invalid_argument("--layers, --d-model: expected a model that fits in this machine's memory of " +
                                gib(memory) + ", got " + std::to_string(s.layers) + " and " +
                                std::to_string(s.d_model) + ", which take at least " + gib(model + row));
  }
  const auto most = static_cast<std::int64_t>((memory - model) / std::max(row, 1.0));
  if (s.batch > most) {
    throw std::invalid_argument("--batch: expected at most " + std::to_string(most) + ", which fill this machine's " +
                                "memory of " + gib(memory) + ", got " + std::to_string(s.batch));
  }
  return s;
}

}  // namespace

Run::Run(const RunSettings& s, const Text& text)
    : settings_(checked(s, text)),
      text_(text),
      split_(text.size() - text.size() / 10),
      model_({.vocabulary = text.vocabulary(),
              .context = s.context,
              .d_model = s.d_model,
              .heads = s.heads,
              .layers = s.layers,
              .dropout = s.dropout,
              .seed = s.seed}),
      optimiser_(model_.parameters(), {.lr = s.lr, .beta2 = 0.99, .weight_decay = 0.1}) {}

double Run::train_step() {
  const std::int64_t now = step();
  // Far apart, so that no step reaches the numbers of the next.
  const auto place = static_cast<std::uint64_t>(now) << 24;
  Random random(settings_.seed, "batch");
  random.seek(place);
  model_.dropout_random().seek(place);
  optimiser_.set_lr(settings_.lr * warmup_cosine(now, settings_.steps / 20, settings_.steps));

  const Text::Batch batch = text_.draw(random, settings_.batch, settings_.context, 0, split_);
  const Tensor loss = model_.loss(batch.ids, batch.labels);
  if (!std::isfinite(loss.item())) {
    throw Diverged("step " + std::to_string(now + 1) + ": expected a finite loss, got " + std::to_string(loss.item()) +
                   "; try a lower --lr");
  }
  loss.backward();
  clip_gradients(model_.parameters(), 1.0);
  optimiser_.step();
  optimiser_.zero_grad();
  return loss.item();
}

double Run::held_out_loss() {
  const NoGrad off;
  model_.eval();
  Random random(settings_.seed, "held out");
  constexpr int kBatches = 16;
  double total = 0;
  for (int i = 0; i < kBatches; ++i) {
    const Text::Batch batch = text_.draw(random, settings_.batch, settings_.context, split_, text_.size());
    total += model_.loss(batch.ids, batch.labels).item();
  }
  model_.train();
  return total / kBatches;
}

std::string Run::sample(std::int64_t characters, double temperature, std::uint64_t number) {
  model_.eval();
  Random random(settings_.seed, "sample");
  random.seek(number << 24);
  const std::int64_t newline = std::max<std::int64_t>(0, static_cast<std::int64_t>(text_.alphabet().find('\n')));
  const std::vector<std::int64_t> all = model_.generate({newline}, characters, temperature, random);
  model_.train();
  return text_.decode({all.begin() + 1, all.end()});
}

double Run::bigram_loss() const { return text_.bigram_loss(split_, text_.size()); }

std::string Run::description() const {
  std::ostringstream text;
  text << "layers " << settings_.layers << ", heads " << settings_.heads << ", d_model " << settings_.d_model
       << ", context " << settings_.context << ", batch " << settings_.batch << ", steps " << settings_.steps << ", lr "
       << settings_.lr << ", dropout " << settings_.dropout << ", seed " << settings_.seed << ", characters "
       << text_.size() << ", alphabet " << text_.vocabulary() << ", text " << text_.digest();
  return text.str();
}

void Run::save(const std::string& path) const {
  for (const auto& [name, tensor] : model_.parameters()) {
    for (const float x : tensor.data<float>()) {
      if (std::isfinite(x)) continue;
      throw Diverged("step " + std::to_string(step()) + ": expected finite weights to save, got " + std::to_string(x) +
                     " in " + name + "; try a lower --lr");
    }
  }
  Checkpoint checkpoint{.metadata = {{"run", description()}}};
  append(checkpoint.tensors, "model.", model_.parameters());
  append(checkpoint.tensors, "optimiser.", optimiser_.state());
  save_checkpoint(path, checkpoint);
}

void Run::load(const std::string& path) {
  const Checkpoint checkpoint = load_checkpoint(path);
  if (checkpoint.text("run") != description()) {
    throw std::runtime_error(path + ": expected a checkpoint of this run (" + description() + "), got one of " +
                             checkpoint.text("run"));
  }
  model_.load(checkpoint.under("model."));
  optimiser_.load_state(checkpoint.under("optimiser."));
}
