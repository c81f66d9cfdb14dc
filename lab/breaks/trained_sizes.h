#pragma once

#include <vector>

#include "lab/breaks/breaks.h"
#include "lab/recall.h"

namespace keel::lab {

// The model of the ablation trained with one score function at d_k 4, 16 and 64 and one learning rate. Versions with
// the same seed begin with the same weights and see the same data.
class TrainedSizes {
 public:
  TrainedSizes(const nn::ScoreMaker& score, Work& work);

  // One value per seed.
  std::vector<double> at(std::int64_t d_k, const std::function<double(const Trained&)>& value) const;
  std::vector<double> at_start(std::int64_t d_k, double Snapshot::*value) const;
  std::vector<double> steps(std::int64_t d_k) const;  // until the loss is half of chance
  std::vector<double> accuracy(std::int64_t d_k) const;

  // Loss and largest weight while training, and the weights of one sequence before it.
  std::vector<Figure> figures() const;

 private:
  std::vector<std::vector<Trained>> runs_;  // by d_k and seed
};

}  // namespace keel::lab
