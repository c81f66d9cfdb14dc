#include "run.h"

#include <algorithm>
#include <sstream>
#include <stdexcept>

using namespace keel::nn;

Run::Run(const RunSettings& s, const Text& text)
    : settings_(s),
      text_(text),
      split_(text.size() - text.size() / 10),
      model_({.vocabulary = text.vocabulary(),
              .context = s.context,
              .d_model = s.d_model,
              .heads = s.heads,
              .layers = s.layers,
              .dropout = s.dropout,
              .seed = s.seed}),
      optimiser_(model_.parameters(), {.lr = s.lr, .beta2 = 0.99, .weight_decay = 0.1}) {
  if (text.size() / 10 < s.context + 2) {
    throw std::runtime_error("the text is too short: expected at least " + std::to_string(10 * (s.context + 2)) +
                             " characters for a context of " + std::to_string(s.context) + ", got " +
                             std::to_string(text.size()));
  }
}

double Run::train_step() {
  const std::int64_t now = step();
  // Far apart, so that no step comes into the numbers of the next.
  const auto place = static_cast<std::uint64_t>(now) << 24;
  Random random(settings_.seed, "batch");
  random.seek(place);
  model_.dropout_random().seek(place);
  optimiser_.set_lr(settings_.lr * warmup_cosine(now, settings_.steps / 20, settings_.steps));

  const Text::Batch batch = text_.draw(random, settings_.batch, settings_.context, 0, split_);
  const Tensor loss = model_.loss(batch.ids, batch.labels);
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
       << text_.size() << ", alphabet " << text_.vocabulary();
  return text.str();
}

void Run::save(const std::string& path) const {
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
