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

  // Relative cost of the two profiles, for the time left: about seconds on one core.
  struct Cost {
    double quick = 1, full = 1;
  };
  virtual Cost cost() const = 0;

  // One that takes too long to be part of `keel lab` without a name.
  virtual bool by_name_only() const { return false; }
};

// All experiments, in the order of the report.
std::span<const std::unique_ptr<Experiment>> experiments();

// nullptr if there is none of this name.
const Experiment* find_experiment(const std::string& name);

}  // namespace keel::lab
