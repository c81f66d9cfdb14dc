#pragma once

#include <vector>

#include "lab/breaks/breaks.h"
#include "lab/recall.h"

namespace keel::lab {

// The model of the ablation trained with the healthy and with the broken score function, seed by seed from the same
// weights on the same data, at d_k 4 and 64 and one learning rate.
class TrainedBoth {
 public:
  TrainedBoth(const nn::ScoreMaker& broken, Work& work);

  Observed at(std::int64_t d_k, const std::function<double(const Trained&)>& value) const;
  Observed at_start(std::int64_t d_k, double Snapshot::*value) const;
  Observed steps(std::int64_t d_k) const;  // until the loss is half of chance
  Observed accuracy(std::int64_t d_k) const;

 private:
  struct Runs {
    std::vector<Trained> healthy, broken;
  };
  Runs small_, large_;
};

}  // namespace keel::lab
