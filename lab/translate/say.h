#pragma once

#include <functional>
#include <optional>

#include "lab/result.h"
#include "lab/translate/comparison.h"

namespace keel::lab::translate {

// An arm that can translate.
struct TrainedArm {
  Arm arm;
  Language source, target;
  std::int64_t longest = 0;  // most words of a translation
  std::unique_ptr<Model> model;
};

// As a .safetensors file, with the run it belongs to. load() gives nothing if there is none of that run at `path`.
void save(const TrainedArm& arm, const std::string& path, const Json& run);
std::optional<TrainedArm> load(const std::string& path, const Json& run);

// Trains on what the settings say; `progress`, called with the share done, may throw to stop.
TrainedArm train_arm(const Arm& arm, const Work& work, const std::function<void(double)>& progress);

struct Said {
  std::vector<std::string> translation;     // words
  std::vector<std::string> unknown;         // words of the sentence that the vocabulary does not have
  std::vector<std::string> source, target;  // what the weights refer to, ends included
  std::vector<double> weights;              // row by row; empty for an arm without attention
  Heatmap heatmap() const;
};

// Raises keel::Error if the sentence is empty, too long, or not text.
void check_sentence(const std::string& sentence);
Said say(const TrainedArm& arm, const std::string& sentence);

}  // namespace keel::lab::translate
