#pragma once

#include <memory>

#include "lab/experiment.h"

// One maker per file of experiments/.
namespace keel::lab {

std::unique_ptr<Experiment> make_example();
std::unique_ptr<Experiment> make_softmax();
std::unique_ptr<Experiment> make_variance();
std::unique_ptr<Experiment> make_saturation();
std::unique_ptr<Experiment> make_entropy();
std::unique_ptr<Experiment> make_gradient();
std::unique_ptr<Experiment> make_length();
std::unique_ptr<Experiment> make_ablation();
std::unique_ptr<Experiment> make_temperature();
std::unique_ptr<Experiment> make_scores();
std::unique_ptr<Experiment> make_translate();
std::unique_ptr<Experiment> make_broken();

}  // namespace keel::lab
