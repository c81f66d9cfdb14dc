#include "lab/breaks/train_both.h"

#include <fmt/format.h>

namespace keel::lab {
namespace {

constexpr std::size_t kSeeds = 4;

}  // namespace

TrainedBoth::TrainedBoth(const nn::ScoreMaker& broken, Work& work) {
  const OneThreadEach one_thread_each;
  struct Cell {
    std::int64_t d_k;
    nn::ScoreMaker score;
    double cost() const { return 16 + static_cast<double>(d_k); }
  };
  auto found = work.repeat(1.0, std::vector<Cell>{{4, {}}, {4, broken}, {64, {}}, {64, broken}}, kSeeds,
                           [&](const Cell& cell, std::size_t r) {
                             return train_recall({.d_k = cell.d_k,
                                                  .score = cell.score,
                                                  .lr = 1e-2,
                                                  .steps = work.steps(300, 300),
                                                  .every = 10,
                                                  .seed = work.settings().seed,
                                                  .stream = fmt::format("break/{}", r)});
                           });
  small_ = {std::move(found[0]), std::move(found[1])};
  large_ = {std::move(found[2]), std::move(found[3])};
}

Observed TrainedBoth::at(std::int64_t d_k, const std::function<double(const Trained&)>& value) const {
  const Runs& runs = d_k == 4 ? small_ : large_;
  Observed observed;
  for (const Trained& run : runs.healthy) observed.healthy.push_back(value(run));
  for (const Trained& run : runs.broken) observed.broken.push_back(value(run));
  return observed;
}

Observed TrainedBoth::at_start(std::int64_t d_k, double Snapshot::*value) const {
  return at(d_k, [=](const Trained& t) { return t.snapshots.front().*value; });
}

Observed TrainedBoth::steps(std::int64_t d_k) const {
  return at(d_k, [](const Trained& t) { return t.steps_to(recall_chance() / 2); });
}

Observed TrainedBoth::accuracy(std::int64_t d_k) const {
  return at(d_k, [](const Trained& t) { return t.last().accuracy; });
}

}  // namespace keel::lab
