#include "lab/breaks/trained_sizes.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "lab/learning_curves.h"

namespace keel::lab {
namespace {

constexpr std::size_t kSeeds = 4;
constexpr std::array<std::int64_t, 3> kSizes = {4, 16, 64};

std::size_t index_of(std::int64_t d_k) {
  return static_cast<std::size_t>(std::find(kSizes.begin(), kSizes.end(), d_k) - kSizes.begin());
}

}  // namespace

TrainedSizes::TrainedSizes(const nn::ScoreMaker& score, Work& work) {
  const OneThreadEach one_thread_each;
  struct Cell {
    std::int64_t d_k;
    double cost() const { return 16 + static_cast<double>(d_k); }
  };
  std::vector<Cell> cells;
  for (const std::int64_t d_k : kSizes) cells.push_back({d_k});
  runs_ = work.repeat(1.0, cells, work.repeats(kSeeds, kSeeds), [&](const Cell& cell, std::size_t r) {
    return train_recall({.d_k = cell.d_k,
                         .score = score,
                         .lr = 1e-2,
                         .steps = work.steps(300, 300),
                         .every = 10,
                         .seed = work.settings().seed,
                         .stream = fmt::format("break/{}", r)});
  });
}

std::vector<double> TrainedSizes::at(std::int64_t d_k, const std::function<double(const Trained&)>& value) const {
  std::vector<double> values;
  for (const Trained& run : runs_[index_of(d_k)]) values.push_back(value(run));
  return values;
}

std::vector<double> TrainedSizes::at_start(std::int64_t d_k, double Snapshot::*value) const {
  return at(d_k, [=](const Trained& t) { return t.snapshots.front().*value; });
}

std::vector<double> TrainedSizes::steps(std::int64_t d_k) const {
  return at(d_k, [](const Trained& t) { return t.steps_to(recall_chance() / 2); });
}

std::vector<double> TrainedSizes::accuracy(std::int64_t d_k) const {
  return at(d_k, [](const Trained& t) { return t.last().accuracy; });
}

std::vector<Figure> TrainedSizes::figures() const {
  constexpr std::array kNames = {"d_k = 4", "d_k = 16", "d_k = 64"};
  static_assert(kNames.size() == kSizes.size());
  std::vector<Arm> arms;
  for (std::size_t i = 0; i < kSizes.size(); ++i) arms.push_back({kNames[i], &runs_[i]});
  Result drawn;
  draw_curve(drawn, "loss", "Loss while training", {"loss", "Loss", "loss, nats", &Snapshot::loss}, arms);
  draw_curve(drawn, "largest", "Largest weight of a row while training",
             {"largest", "Largest weight", "largest weight", &Snapshot::max_weight}, arms);
  drawn.figures.push_back(weights_figure(runs_.back().front().weights_before));
  drawn.figures.back().title += " before training, d_k = 64";
  return std::move(drawn.figures);
}

}  // namespace keel::lab
