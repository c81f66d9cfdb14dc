#pragma once

#include "lab/result.h"
#include "lab/translate/evaluation.h"
#include "lab/translate/training.h"
#include "lab/work.h"

namespace keel::lab::translate {

struct ComparisonSettings {
  SetSizes sizes;
  TrainingSettings training;
  std::size_t repeats = 3;
  std::size_t beam_sentences = 100;  // of the test set
  std::int64_t beam = 4;
};
// As the profile sets them.
ComparisonSettings comparison_settings(const Work& work);

// The result of one arm with one seed.
struct Found {
  double parameters = 0;
  Training training;
  double loss = 0;                        // per word of the test set
  Quality test, longer, beam, greedy;     // the last two on the same beam_sentences
  Looking start, end;                     // before and after training
  std::vector<std::vector<double>> maps;  // of each example: (words of the target) × (words of the source)
};

struct Comparison {
  const Task& task;
  ComparisonSettings settings;
  std::vector<Arm> arms;
  std::vector<Pair> examples;             // of the test set, whose heatmaps are drawn
  std::vector<std::vector<Found>> found;  // by arm and repeat

  bool aligned() const { return !task.sets.test.front().alignment.empty(); }
};

// Trains every arm with every seed, each on one thread: `share` of the experiment.
Comparison compare(Work& work, double share, const Task& task, const ComparisonSettings& settings,
                   std::vector<Arm> arms);

// The seed that an arm is first trained with; the others follow.
inline std::uint64_t first_seed(const Work& work) { return work.settings().seed * 1000; }

// An arm as the comparison trains it with one seed. `step` as in train(); `at_start` gets the untrained model.
struct TrainedModel {
  std::unique_ptr<Model> model;
  Training training;
};
TrainedModel trained(const Arm& arm, const Task& task, const TrainingSettings& settings, std::uint64_t seed,
                     const std::function<void(std::int64_t)>& step,
                     const std::function<void(const Model&)>& at_start = {});

// The comparison in words, figures and measurements. `data` names what the sentences are.
Result report_on(const Comparison& comparison, const std::string& data);

}  // namespace keel::lab::translate
