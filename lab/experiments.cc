#include "lab/experiments.h"

#include "lab/experiment.h"

namespace keel::lab {

std::span<const std::unique_ptr<Experiment>> experiments() {
  static const std::vector<std::unique_ptr<Experiment>> all = [] {
    std::vector<std::unique_ptr<Experiment>> list;
    list.push_back(make_example());
    list.push_back(make_softmax());
    list.push_back(make_variance());
    list.push_back(make_saturation());
    list.push_back(make_entropy());
    list.push_back(make_gradient());
    list.push_back(make_length());
    list.push_back(make_ablation());
    list.push_back(make_temperature());
    list.push_back(make_scores());
    list.push_back(make_translate());
    list.push_back(make_broken());
    return list;
  }();
  return all;
}

const Experiment* find_experiment(const std::string& name) {
  for (const auto& experiment : experiments()) {
    if (experiment->name() == name) return experiment.get();
  }
  return nullptr;
}

}  // namespace keel::lab
