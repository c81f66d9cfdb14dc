#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "lab/experiments.h"
#include "lab/learning_curves.h"
#include "lab/statistics.h"

namespace keel::lab {
namespace ablation_experiment {
namespace {

constexpr const char* kBand = "one standard deviation over seeds";
constexpr const char* kConfidence = "95 % confidence interval of the mean";

double target() { return recall_chance() / 2; }

struct Scaling {
  const char *id, *name;
  nn::ScoreMaker score;
};

const std::vector<Scaling>& arms() {
  static const std::vector<Scaling> all = {
      {"scaled", "divided by √d_k", {}},
      {"raw", "unscaled", [](auto, auto) { return nn::WrongScaleScore::none(); }},
      {"model", "divided by √d_model", [](auto, auto) { return nn::WrongScaleScore::by_model_size(recall::kModel); }},
      {"learned", "learned τ", [](auto h, auto d_k) { return std::make_unique<nn::TemperatureScore>(h, d_k); }},
  };
  return all;
}

// One arm at one d_k: what is compared.
struct Setting {
  const Scaling* arm;
  std::int64_t d;
  std::string key() const { return fmt::format("ablation.{}.d{}", arm->id, d); }
};

struct Cell {
  Setting setting;
  double lr;
  double cost() const { return 16 + static_cast<double>(setting.d); }
};

constexpr std::array<Watched, 4> kWatched{
    {{"loss", "Loss", "loss, nats", &Snapshot::loss, true},
     {"largest", "Largest weight of a row", "largest weight", &Snapshot::max_weight},
     {"entropy", "Entropy of a row", "entropy, nats", &Snapshot::entropy},
     {"gradient", "Gradient at W_Q", "norm of the gradient", &Snapshot::dw_q, true}}};

std::vector<double> over(const std::vector<Trained>& runs, const std::function<double(const Trained&)>& value) {
  std::vector<double> values;
  for (const Trained& run : runs) values.push_back(value(run));
  return values;
}

// Mean loss over the whole run: low for a run that learns early and ends low.
double area(const Trained& run) { return mean(column(run.snapshots, &Snapshot::loss)); }

// How a learning rate is chosen: how many runs reach the target, then the mean loss.
struct Tried {
  double area = 0, reached = 0;
};
bool better(const std::vector<Tried>& a, const std::vector<Tried>& b) {
  const double reached_a = mean(column(a, &Tried::reached)), reached_b = mean(column(b, &Tried::reached));
  if (reached_a != reached_b) return reached_a > reached_b;
  return mean(column(a, &Tried::area)) < mean(column(b, &Tried::area));
}

void record(Result& result, const std::string& arm, const std::vector<Trained>& runs) {
  const auto keep = [&](const char* what, const std::function<double(const Trained&)>& value) {
    result.measure(fmt::format("{}.{}", arm, what), over(runs, value));
  };
  keep("loss", [](const Trained& t) { return t.last().loss; });
  keep("moved", [](const Trained& t) { return 1 - t.last().loss / t.snapshots.front().loss; });
  keep("accuracy", [](const Trained& t) { return t.last().accuracy; });
  keep("steps", [](const Trained& t) { return t.steps_to(target()); });
  keep("reached", [](const Trained& t) { return t.reached(target()) ? 1.0 : 0.0; });
  keep("dw_q", [](const Trained& t) { return mean(column(t.snapshots, &Snapshot::dw_q)); });
  for (const auto& [when, at] : {std::pair{"start", 0}, {"end", 1}}) {
    const auto snapshot = [at = at](const Trained& t) { return at == 0 ? t.snapshots.front() : t.snapshots.back(); };
    const auto both = [&, when = when](const char* what, double Snapshot::*value) {
      keep(fmt::format("{}.{}", when, what).c_str(), [&](const Trained& t) { return snapshot(t).*value; });
    };
    both("max_weight", &Snapshot::max_weight);
    both("saturated", &Snapshot::saturated);
    both("entropy", &Snapshot::entropy);
    both("logit_var", &Snapshot::logit_var);
    both("dw_q", &Snapshot::dw_q);
    both("dw_k", &Snapshot::dw_k);
    both("dw_v", &Snapshot::dw_v);
  }
}

// Against the same data and initial weights.
void record_against_scaled(Result& result, const std::string& arm, const std::vector<Trained>& runs,
                           const std::vector<Trained>& scaled) {
  std::vector<double> slower, flat;
  for (std::size_t r = 0; r < runs.size(); ++r) {
    slower.push_back(runs[r].steps_to(target()) / scaled[r].steps_to(target()));
    flat.push_back(runs[r].settled() / scaled[r].settled());
  }
  result.measure(arm + ".slower", slower);
  result.measure(arm + ".flat", flat);
}

// A block whose rows begin one-hot, which unscaled ones at these d_k do not: scores of this standard deviation, as
// unscaled ones have at d_k = kSaturation².
constexpr std::int64_t kSaturatedSize = 64;
constexpr double kSaturation = 256;

void train_saturated(Work& work, double share, Result& result) {
  const std::vector<double> rates = {3e-3, 1e-2, 3e-2, 1e-1};
  const std::int64_t steps = work.steps(300, 600);
  const auto train = [&](double lr, const char* part, std::size_t r) {
    return train_recall({.d_k = kSaturatedSize,
                         .score = fixed_temperature(1 / kSaturation),
                         .lr = lr,
                         .steps = steps,
                         .every = std::max<std::int64_t>(steps / 30, 5),
                         .seed = work.settings().seed,
                         .stream = fmt::format("ablation/saturated/{}/{}", part, r)});
  };
  const auto tried = work.repeat(share / 2, rates, work.repeats(3, 6), [&](double lr, std::size_t r) {
    const Trained run = train(lr, "sweep", r);
    return Tried{area(run), run.reached(target()) ? 1.0 : 0.0};
  });
  const double lr =
      rates[static_cast<std::size_t>(std::min_element(tried.begin(), tried.end(), better) - tried.begin())];
  const auto found = work.repeat(share / 2, std::vector{lr}, work.repeats(12, 24),
                                 [&](double rate, std::size_t r) { return train(rate, "final", r); });
  record(result, "ablation.saturated", found.front());
  result.exact("ablation.saturated.lr", lr);
  result.findings.push_back(
      fmt::format("A block whose rows begin one-hot ({:.0f} % of them above 0.99) gets {:.0f} % of values right after "
                  "training, at its best learning rate; {:.0f} % of its runs reach the target.",
                  100 * result.at("ablation.saturated.start.saturated"), 100 * result.at("ablation.saturated.accuracy"),
                  100 * result.at("ablation.saturated.reached")));
}

class Ablation : public Experiment {
 public:
  std::string name() const override { return "ablation"; }
  std::string question() const override {
    return "Does a transformer learn without the scaling, or with a different one, when each variant may choose its "
           "learning rate?";
  }
  Cost cost() const override { return {140, 650}; }

  Result run(Work& work) const override {
    const OneThreadEach one_thread_each;
    const std::vector<std::int64_t> sizes =
        work.pick(std::vector<std::int64_t>{4, 16, 64}, std::vector<std::int64_t>{4, 16, 64, 128});
    const std::vector<double> rates =
        work.pick(std::vector{3e-3, 1e-2, 3e-2, 1e-1}, std::vector{1e-3, 3e-3, 1e-2, 3e-2, 1e-1});
    const std::int64_t steps = work.steps(300, 600), every = std::max<std::int64_t>(steps / 30, 5);
    const std::size_t tries = work.repeats(6, 6), seeds = work.repeats(16, 24);

    std::vector<Setting> settings;
    for (const std::int64_t d : sizes) {
      for (const Scaling& arm : arms()) settings.push_back({&arm, d});
    }
    const auto train = [&](const Cell& cell, const char* part, std::size_t r) {
      return train_recall({.d_k = cell.setting.d,
                           .score = cell.setting.arm->score,
                           .lr = cell.lr,
                           .steps = steps,
                           .every = every,
                           .seed = work.settings().seed,
                           .stream = fmt::format("ablation/{}/d{}/{}", part, cell.setting.d, r)});
    };

    const double saturated_share = 0.08;  // of the experiment
    // The learning rate of each setting, on separate seeds; then that rate on others.
    std::vector<Cell> sweep, chosen;
    for (const Setting& s : settings) {
      for (const double lr : rates) sweep.push_back({s, lr});
    }
    const double sweep_runs = static_cast<double>(rates.size() * tries);
    const double share = (1 - saturated_share) * sweep_runs / (sweep_runs + static_cast<double>(seeds));
    const auto swept = work.repeat(share, sweep, tries, [&](const Cell& c, std::size_t r) {
      const Trained run = train(c, "sweep", r);
      return Tried{area(run), run.reached(target()) ? 1.0 : 0.0};
    });
    for (std::size_t s = 0; s < settings.size(); ++s) {
      const auto first = swept.begin() + static_cast<std::ptrdiff_t>(s * rates.size());
      const auto best = std::min_element(first, first + static_cast<std::ptrdiff_t>(rates.size()), better);
      chosen.push_back({settings[s], rates[static_cast<std::size_t>(best - first)]});
    }
    const auto found = work.repeat(1 - saturated_share - share, chosen, seeds,
                                   [&](const Cell& c, std::size_t r) { return train(c, "final", r); });

    Result result;
    result.settings = fmt::format(
        "Key–value lookup: {} pairs and {} questions per sequence, {} keys, {} values; one pre-norm block, d_model {}, "
        "{} heads of size d_k, LeCun's weights; Adam, {} steps of {} sequences, measured on {} others. Learning rate, "
        "from {:g} to {:g}: of {}, the one at which most runs reach the target, with ties decided by mean loss, over "
        "{} seeds; results from {} other seeds. Target: half of chance, {:.2f} nats. Saturated: d_k {} with scores of "
        "standard deviation {:.0f} at the start, at the best of those rates.",
        recall::kPairs, recall::kQuestions, recall::kKeys, recall::kValues, recall::kModel, recall::kHeads, steps,
        recall::kBatch, recall::kExamined, rates.front(), rates.back(), rates.size(), tries, seeds, target(),
        kSaturatedSize, kSaturation);
    for (std::size_t i = 0; i < chosen.size(); ++i) {
      const std::string key = chosen[i].setting.key();
      record(result, key, found[i]);
      record_against_scaled(result, key, found[i], found[i / arms().size() * arms().size()]);
      result.exact(key + ".lr", chosen[i].lr);
    }
    train_saturated(work, saturated_share, result);
    tell(result, sizes);
    draw_ends(result, sizes, found);
    draw_rates(result, sizes, rates, swept);
    for (std::size_t d = 0; d < sizes.size(); ++d) {
      std::vector<Arm> lines;
      for (std::size_t a = 0; a < arms().size(); ++a) lines.push_back({arms()[a].name, &found[d * arms().size() + a]});
      for (const Watched& w : kWatched) {
        draw_curve(result, fmt::format("{}-d{}", w.id, sizes[d]),
                   fmt::format("{} while training, d_k = {}", w.title, sizes[d]), w, lines);
      }
    }
    return result;
  }

 private:
  static void tell(Result& result, const std::vector<std::int64_t>& sizes) {
    const auto at = [&](const char* arm, std::int64_t d, const char* what) {
      return result.at(fmt::format("ablation.{}.d{}.{}", arm, d, what));
    };
    std::string slower, starts;
    for (const std::int64_t d : sizes) {
      const char* comma = slower.empty() ? "" : ", ";
      slower += fmt::format("{}{:.2f} at d_k = {}", comma, at("raw", d, "slower"), d);
      starts += fmt::format("{}{:.2f} (scaled {:.2f}) at d_k = {}", comma, at("raw", d, "start.max_weight"),
                            at("scaled", d, "start.max_weight"), d);
    }
    result.findings.push_back(
        fmt::format("Unscaled, with its own learning rate, the model gets {:.0f} % of values right at d_k = 64 "
                    "(scaled {:.0f} %). Steps to the target, as a multiple of the scaled model's: {}.",
                    100 * at("raw", 64, "accuracy"), 100 * at("scaled", 64, "accuracy"), slower));
    result.findings.push_back(fmt::format("Largest weight of a row before the first step: {}.", starts));
    result.findings.push_back(
        fmt::format("Norm of the gradient at W_Q at the first step, d_k = 64: {:.2f} unscaled, {:.2f} scaled.",
                    at("raw", 64, "start.dw_q"), at("scaled", 64, "start.dw_q")));
    result.findings.push_back(fmt::format(
        "The best learning rate at d_k = 64 is {:g} unscaled and {:g} scaled. √d_model = √{} instead of "
        "√d_k takes {:.2f} times the steps at d_k = 4 and {:.2f} at 64; a learned τ takes {:.2f} and {:.2f}.",
        at("raw", 64, "lr"), at("scaled", 64, "lr"), recall::kModel, at("model", 4, "slower"),
        at("model", 64, "slower"), at("learned", 4, "slower"), at("learned", 64, "slower")));
  }

  static void draw_ends(Result& result, const std::vector<std::int64_t>& sizes,
                        const std::vector<std::vector<Trained>>& found) {
    std::vector<std::string> names;
    for (const std::int64_t d : sizes) names.push_back(fmt::format("d_k = {}", d));
    const auto dots = [&](const std::function<double(const Trained&)>& value) {
      std::vector<Series> series;
      for (std::size_t a = 0; a < arms().size(); ++a) {
        series.push_back({arms()[a].name, {}});
        for (std::size_t d = 0; d < sizes.size(); ++d) {
          series.back().points.push_back(
              confident_point(static_cast<double>(d), over(found[d * arms().size() + a], value)));
        }
      }
      return series;
    };
    const auto text = [&](const char* what, const char* unit) {
      std::string all;
      for (const std::int64_t d : sizes) {
        all += fmt::format("{}d_k = {}:", all.empty() ? "" : " ", d);
        for (const Scaling& arm : arms()) {
          all += fmt::format(" {} {:.3g}{}", arm.name, result.at(fmt::format("ablation.{}.d{}.{}", arm.id, d, what)),
                             &arm == &arms().back() ? "" : ",");
        }
        all += fmt::format(" {}.", unit);
      }
      return all;
    };
    result.draw("steps", "Steps until the loss is half of chance, each arm at its best learning rate",
                text("steps", "steps") + " A run that never gets there counts with all its steps.",
                Dots{{"steps"}, names, dots([](const Trained& t) { return t.steps_to(target()); }), kConfidence});
    result.draw("final", "Loss at the end, each arm at its best learning rate", text("loss", "nats"),
                Dots{{"loss, nats", true}, names, dots([](const Trained& t) { return t.last().loss; }), kConfidence});
  }

  static void draw_rates(Result& result, const std::vector<std::int64_t>& sizes, const std::vector<double>& rates,
                         const std::vector<std::vector<Tried>>& swept) {
    for (std::size_t d = 0; d < sizes.size(); ++d) {
      std::vector<Series> series;
      std::string text;
      for (std::size_t a = 0; a < arms().size(); ++a) {
        series.push_back({arms()[a].name, {}});
        for (std::size_t l = 0; l < rates.size(); ++l) {
          const auto found = column(swept[(d * arms().size() + a) * rates.size() + l], &Tried::area);
          series.back().points.push_back(point(rates[l], found));
          result.measure(fmt::format("ablation.{}.d{}.lr{:g}.area", arms()[a].id, sizes[d], rates[l]), found);
        }
        text += fmt::format("{}{} is best at {:g}", a == 0 ? "" : ", ", arms()[a].name,
                            result.at(fmt::format("ablation.{}.d{}.lr", arms()[a].id, sizes[d])));
      }
      result.draw(fmt::format("rates-d{}", sizes[d]), fmt::format("Learning rate, d_k = {}", sizes[d]),
                  fmt::format("Mean loss over the run, lower is better: {}.", text),
                  Lines{{"learning rate", true}, {"mean loss, nats"}, std::move(series), kBand});
    }
  }
};

}  // namespace
}  // namespace ablation_experiment

std::unique_ptr<Experiment> make_ablation() { return std::make_unique<ablation_experiment::Ablation>(); }

}  // namespace keel::lab
