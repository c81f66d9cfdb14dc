#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "lab/result.h"
#include "lab/work.h"

namespace keel::lab {

// One question and the measurement that answers it. To add one: a file in experiments/, a line in experiments.cc, its
// claims in claims/, a test of its numbers (docs/lab.md).
class Experiment {
 public:
  virtual ~Experiment() = default;
  virtual std::string name() const = 0;      // as in `keel lab NAME`; also the first part of each measurement's key
  virtual std::string question() const = 0;  // one sentence
  virtual Result run(Work& work) const = 0;

  // Relative cost, for the time left: about seconds on one core.
  struct Cost {
    double quick = 1, full = 1;
    double quick_short = 0, full_short = 0;  // of the short form
  };
  virtual Cost cost() const = 0;
  double cost(const Settings& settings) const {
    const Cost all = cost();
    if (settings.short_form) return settings.full ? all.full_short : all.quick_short;
    return settings.full ? all.full : all.quick;
  }

  // Whether it has a short form (Settings::short_form): one that takes minutes and has options of its own when it is
  // named, and is shorter as a part of `keel lab` without a name.
  virtual bool has_short_form() const { return false; }
};

// All experiments, in the order of the report.
std::span<const std::unique_ptr<Experiment>> experiments();

// nullptr if there is none of this name.
const Experiment* find_experiment(const std::string& name);

}  // namespace keel::lab
