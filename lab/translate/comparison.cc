#include "lab/translate/comparison.h"

#include <fmt/format.h>

#include <algorithm>

namespace keel::lab::translate {
namespace {

// While it is alive, the training layer uses one thread: training runs go in parallel, one per thread.
struct OneThread {
  OneThread() { nn::set_threads(1); }
  ~OneThread() { nn::set_threads(0); }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;
};

// How many pairs of target words are in the opposite order of what they translate.
std::size_t crossings(const Pair& pair) {
  std::size_t count = 0;
  for (std::size_t i = 0; i < pair.alignment.size(); ++i) {
    for (std::size_t j = i + 1; j < pair.alignment.size(); ++j) {
      if (pair.alignment[i].empty() || pair.alignment[j].empty()) continue;
      count += pair.alignment[i].front() > pair.alignment[j].front() ? 1 : 0;
    }
  }
  return count;
}

// Test sentences small enough to draw, those whose words move most first.
std::vector<Pair> choose_examples(const std::vector<Pair>& test) {
  constexpr std::size_t kExamples = 2, kFewest = 8, kMost = 13;
  std::vector<Pair> fit;
  for (const Pair& pair : test) {
    const auto fits = [](std::size_t n) { return n >= kFewest && n <= kMost; };
    if (fits(pair.source.size()) && fits(pair.target.size())) fit.push_back(pair);
  }
  if (fit.empty()) fit.push_back(test.front());
  std::stable_sort(fit.begin(), fit.end(), [](const Pair& a, const Pair& b) { return crossings(a) > crossings(b); });
  fit.resize(std::min(fit.size(), kExamples));
  return fit;
}

std::vector<double> map_of(const Model& model, const Task& task, const Pair& pair) {
  const nn::Tensor weights = weights_of(model, coded(task, pair));
  return weights.given() ? weights.values() : std::vector<double>{};
}

// Roughly seconds: the cost of a step relative to one without attention.
double cost_of(const Arm& arm) {
  return arm.look == Look::none ? 1.0 : arm.look == Look::transformer || arm.heads > 1 || arm.d_k > 64 ? 1.7 : 1.3;
}

}  // namespace

ComparisonSettings comparison_settings(const Work& work) {
  const int form = (work.settings().full ? 2 : 1) - (work.settings().short_form ? 1 : 0);
  if (form == 0) {  // short enough to be part of the whole lab
    return {{12'000, 100, 150, 100}, {.steps = 360, .batch = 24, .lr = 0.01}, work.repeats(5, 5), 20};
  }
  if (form == 1) return {{12'000, 200, 300, 200}, {.steps = 800, .batch = 32, .lr = 0.01}, work.repeats(3, 3), 60};
  return {{40'000, 300, 500, 300}, {.steps = 2500, .batch = 64, .lr = 0.01}, work.repeats(5, 5), 300};
}

TrainedModel trained(const Arm& arm, const Task& task, const TrainingSettings& settings, std::uint64_t seed,
                     const std::function<void(std::int64_t)>& step, const std::function<void(const Model&)>& at_start) {
  nn::Random random(seed, "translate/" + arm.id);
  auto model = make_model(arm, task.model_sizes(), random);
  if (at_start) at_start(*model);
  TrainingSettings own = settings;
  own.seed = seed;
  Training training = train(*model, task.train, task.validation, own, step);
  return {std::move(model), std::move(training)};
}

Comparison compare(Work& work, double share, const Task& task, const ComparisonSettings& settings,
                   std::vector<Arm> arms) {
  Comparison comparison{task, settings, std::move(arms), choose_examples(task.sets.test), {}};
  struct Cell {
    const Arm* arm;
    double cost() const { return cost_of(*arm); }
  };
  std::vector<Cell> cells;
  for (const Arm& arm : comparison.arms) cells.push_back({&arm});
  const std::size_t beamed = std::min(settings.beam_sentences, task.test.size());
  const std::vector<Pair> beam_words(task.sets.test.begin(),
                                     task.sets.test.begin() + static_cast<std::ptrdiff_t>(beamed));
  const auto beam_pairs = std::span(task.test).first(beamed);
  const OneThread one_thread;
  comparison.found = work.repeat(share, cells, settings.repeats, [&](const Cell& cell, std::size_t r) {
    Found found;
    auto [model, training] = trained(
        *cell.arm, task, settings.training, first_seed(work) + r, [&](std::int64_t) { work.check(); },
        [&](const Model& untrained) { found.start = looking(untrained, task.sets.test, task.test); });
    found.training = std::move(training);
    found.parameters = static_cast<double>(model->parameter_count());
    found.loss = validate(*model, task.test).loss;
    found.test = quality(*model, task, task.sets.test, task.test);
    found.longer = quality(*model, task, task.sets.longer, task.longer);
    found.greedy = quality(*model, task, beam_words, beam_pairs);
    found.beam = quality(*model, task, beam_words, beam_pairs, settings.beam);
    found.end = looking(*model, task.sets.test, task.test);
    if (r == 0) {
      for (const Pair& pair : comparison.examples) found.maps.push_back(map_of(*model, task, pair));
    }
    return found;
  });
  return comparison;
}

}  // namespace keel::lab::translate
