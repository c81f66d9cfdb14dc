#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "lab/experiments.h"
#include "lab/learning_curves.h"
#include "lab/statistics.h"

namespace keel::lab {
namespace temperature_experiment {
namespace {

constexpr std::int64_t kSize = 64;  // d_k
constexpr double kRate = 1e-2;

struct Setting {
  const char *id, *name;
  nn::ScoreMaker score;
};

const std::vector<Setting>& arms() {
  static const std::vector<Setting> all = {
      {"half", "τ = √d_k / 2", fixed_temperature(0.5)},
      {"unit", "τ = √d_k", fixed_temperature(1)},
      {"double", "τ = 2 √d_k", fixed_temperature(2)},
      {"learned", "learned τ", [](auto h, auto d_k) { return std::make_unique<nn::TemperatureScore>(h, d_k); }},
      {"query", "query-dependent", [](auto h, auto d_k) { return std::make_unique<nn::QueryScaleScore>(h, d_k); }},
  };
  return all;
}

using Runs = std::vector<std::vector<Trained>>;  // by arm and seed

Heatmap pattern(const Matrix& weights, const std::vector<std::int64_t>& answers) {
  Heatmap map{"answer at", "token", "weight", {}, {}, weights.values, 0, 1};
  for (const std::int64_t answer : answers) map.rows.push_back(fmt::format("{}", answer + 1));
  for (std::int64_t j = 0; j < weights.columns; ++j) map.columns.push_back(fmt::format("{}", j + 1));
  return map;
}

void draw_patterns(Result& result, const Runs& found) {
  for (const bool end : {false, true}) {
    for (std::size_t a = 0; a < arms().size(); ++a) {
      if (!end && a > 2) continue;  // they begin as τ = √d_k
      const Trained& run = found[a].front();
      const Matrix& weights = end ? run.weights : run.weights_before;
      result.draw(fmt::format("{}-{}", end ? "after" : "before", arms()[a].id),
                  fmt::format("{}, {} training", capitalised(arms()[a].name), end ? "after" : "before"),
                  fmt::format("The head that finds the most answers, on one sequence: eight questions attending to "
                              "sixteen pairs and to the questions themselves. A question gives its answer {:.2f} of "
                              "its weight on average; the even share is {:.2f}.",
                              end ? run.found : run.found_before, 1 / static_cast<double>(weights.columns)),
                  pattern(weights, run.answers));
    }
  }
}

void draw_curves(Result& result, const Runs& found) {
  std::vector<Arm> lines;
  for (std::size_t a = 0; a < arms().size(); ++a) lines.push_back({arms()[a].name, &found[a]});
  for (const Watched& w : {Watched{"loss", "Loss while training", "loss, nats", &Snapshot::loss, true},
                           Watched{"entropy", "Entropy of a row while training", "entropy, nats", &Snapshot::entropy},
                           Watched{"scores", "Variance of the scores while training",
                                   "variance of a row's scores, after scaling", &Snapshot::logit_var, true}}) {
    draw_curve(result, w.id, w.title, w, lines);
  }
}

// How sharp the learned scales became: 1 is 1/√d_k.
void draw_sharpness(Result& result, const Runs& found) {
  std::vector<double> edges;
  for (double x = 0; x < 3.01; x += 0.1) edges.push_back(x);
  Distribution body{{"scale × √d_k"}, edges, {}};
  for (std::size_t a = 3; a < arms().size(); ++a) {
    std::vector<double> all;
    for (const Trained& run : found[a]) all.insert(all.end(), run.sharpness.begin(), run.sharpness.end());
    body.arms.push_back({arms()[a].name, shares(all, edges)});
  }
  result.draw(
      "sharpness", "Where the learned scales end, relative to 1/√d_k",
      fmt::format("A learned τ ends at {:.2f} times 1/√d_k (one value per head and seed); the query-dependent scale at "
                  "{:.2f} on average over questions, with a standard deviation of {:.2f} between them.",
                  result.at("temperature.learned.sharpness"), result.at("temperature.query.sharpness"),
                  result.at("temperature.query.apart")),
      std::move(body));
}

class Temperature : public Experiment {
 public:
  std::string name() const override { return "temperature"; }
  std::string question() const override {
    return "Where does training end with a temperature other than √d_k, a learned one, or one per query?";
  }
  Cost cost() const override { return {17, 140}; }

  Result run(Work& work) const override {
    const OneThreadEach one_thread_each;
    const std::int64_t steps = work.steps(300, 600);
    const std::size_t seeds = work.repeats(8, 32);
    const Runs found = work.repeat(1.0, arms(), seeds, [&](const Setting& arm, std::size_t r) {
      return train_recall({.d_k = kSize,
                           .score = arm.score,
                           .lr = kRate,
                           .steps = steps,
                           .every = std::max<std::int64_t>(steps / 30, 5),
                           .seed = work.settings().seed,
                           .stream = fmt::format("temperature/{}", r)});
    });
    Result result;
    result.settings = fmt::format(
        "The task and the model of ablation at d_k {}, Adam at {:g}, {} steps. Sharpness is the scale × √d_k, "
        "initially 1. {} seeds.",
        kSize, kRate, steps, seeds);
    for (std::size_t a = 0; a < arms().size(); ++a) record(result, arms()[a], found[a]);
    const auto at = [&](const char* arm, const char* what) {
      return result.at(fmt::format("temperature.{}.{}", arm, what));
    };
    result.findings.push_back(
        fmt::format("After training with τ = √d_k / 2, √d_k and 2 √d_k, {:.0f}, {:.0f} and {:.0f} % of values are "
                    "right. Training changes the scores themselves: their variance goes from {:.2f}, {:.2f} and {:.2f} "
                    "to {:.0f}, {:.0f} and {:.0f}.",
                    100 * at("half", "accuracy"), 100 * at("unit", "accuracy"), 100 * at("double", "accuracy"),
                    at("half", "start.logit_var"), at("unit", "start.logit_var"), at("double", "start.logit_var"),
                    at("half", "end.logit_var"), at("unit", "end.logit_var"), at("double", "end.logit_var")));
    result.findings.push_back(
        fmt::format("A learned τ ends at {:.2f} times the sharpness of √d_k. A scale for each query ends at {:.2f} on "
                    "average, with a standard deviation of {:.2f} between the questions of a run.",
                    at("learned", "sharpness"), at("query", "sharpness"), at("query", "apart")));
    draw_curves(result, found);
    draw_sharpness(result, found);
    draw_patterns(result, found);
    return result;
  }

 private:
  static void record(Result& result, const Setting& arm, const std::vector<Trained>& runs) {
    const auto keep = [&](const char* what, auto value) {
      std::vector<double> values;
      for (const Trained& run : runs) values.push_back(value(run));
      result.measure(fmt::format("temperature.{}.{}", arm.id, what), values);
    };
    keep("loss", [](const Trained& t) { return t.last().loss; });
    keep("accuracy", [](const Trained& t) { return t.last().accuracy; });
    keep("steps", [](const Trained& t) { return t.steps_to(recall_chance() / 2); });
    keep("start.entropy", [](const Trained& t) { return t.snapshots.front().entropy; });
    keep("end.entropy", [](const Trained& t) { return t.last().entropy; });
    keep("start.logit_var", [](const Trained& t) { return t.snapshots.front().logit_var; });
    keep("end.logit_var", [](const Trained& t) { return t.last().logit_var; });
    if (runs.front().sharpness.empty()) return;
    keep("sharpness", [](const Trained& t) { return mean(t.sharpness); });
    keep("apart", [](const Trained& t) { return standard_deviation(t.sharpness); });
  }
};

}  // namespace
}  // namespace temperature_experiment

std::unique_ptr<Experiment> make_temperature() { return std::make_unique<temperature_experiment::Temperature>(); }

}  // namespace keel::lab
