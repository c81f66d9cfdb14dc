#include <fmt/format.h>

#include <array>
#include <cmath>

#include "lab/experiments.h"
#include "lab/measure.h"
#include "lab/statistics.h"
#include "lab/theory.h"

namespace keel::lab {
namespace entropy_experiment {
namespace {

constexpr std::int64_t kLargest = 1024;  // d_k
constexpr std::array<std::int64_t, 2> kKeys = {10, 64};
constexpr const char* kBand = "one standard deviation over seeds";

std::size_t repeats_of(const Work& work) { return work.repeats(20, 200); }

// The exercise of 003: one Q and one K, of which the first d_k components are used, d_k = 1 … 1024.
void measure_growth(Work& work, Result& result) {
  struct Cell {
    std::int64_t n;
  };
  struct Found {
    double raw, scaled, raw_max, scaled_max, raw_sd, scaled_sd;
  };
  std::vector<std::int64_t> sizes;
  for (std::int64_t d = 1; d <= kLargest; d *= 2) sizes.push_back(d);
  std::vector<Cell> cells;
  for (const std::int64_t n : kKeys) cells.push_back({n});
  const auto grown = work.repeat(0.8, cells, repeats_of(work), [&](const Cell& cell, std::size_t r) {
    Random random(work.settings().seed, fmt::format("entropy/growth/{}", cell.n), r);
    const Matrix q = normal_matrix(random, 64, kLargest), k = normal_matrix(random, cell.n, kLargest);
    std::vector<Found> found;
    for (const std::int64_t d : sizes) {
      const Rows raw = measure({.q = q, .k = k, .scale = 1.0, .d_k = d}), scaled = measure({.q = q, .k = k, .d_k = d});
      found.push_back({mean(raw.entropy), mean(scaled.entropy), mean(raw.max_weight), mean(scaled.max_weight),
                       std::sqrt(mean(raw.logit_var)), std::sqrt(mean(scaled.logit_var))});
    }
    return found;
  });

  for (std::size_t c = 0; c < cells.size(); ++c) {
    const std::int64_t n = cells[c].n;
    const double even = std::log(static_cast<double>(n));
    const double plateau = result.exact(fmt::format("entropy.plateau.n{}", n), expected_entropy(n, 1.0));
    Series raw{"unscaled", {}}, scaled{"divided by √d_k", {}},
        most{fmt::format("ln {}: even weights", n), {}, Role::reference},
        level{"theory: scores of variance 1", {}, Role::theory},
        frozen{"theory: scores of variance d_k", {}, Role::theory};
    for (std::size_t s = 0; s < sizes.size(); ++s) {
      std::vector<Found> found;
      for (const auto& repeat : grown[c]) found.push_back(repeat[s]);
      const auto d = static_cast<double>(sizes[s]);
      const std::string key = fmt::format("d{}.n{}", sizes[s], n);
      result.measure("entropy.raw." + key, column(found, &Found::raw));
      result.measure("entropy.scaled." + key, column(found, &Found::scaled));
      result.measure("entropy.raw_max." + key, column(found, &Found::raw_max));
      result.measure("entropy.scaled_max." + key, column(found, &Found::scaled_max));
      result.measure("entropy.raw_sd." + key, column(found, &Found::raw_sd));
      result.measure("entropy.scaled_sd." + key, column(found, &Found::scaled_sd));
      raw.points.push_back(point(d, column(found, &Found::raw)));
      scaled.points.push_back(point(d, column(found, &Found::scaled)));
      most.points.push_back({d, even, even, even});
      level.points.push_back({d, plateau, plateau, plateau});
      const double h = expected_entropy(n, std::sqrt(d));
      frozen.points.push_back({d, h, h, h});
    }
    const double last = raw.points.back().y, kept = scaled.points.back().y;
    result.findings.push_back(
        fmt::format("{} keys: unscaled entropy falls from {:.2f} nats at d_k = 1 to {:.2f} at 64 and {:.3f} at 1024 "
                    "({:.1f} % of ln {}); divided by √d_k it stays at {:.3f} (theory: {:.3f}).",
                    n, raw.points.front().y, result.at(fmt::format("entropy.raw.d64.n{}", n)), last, 100 * last / even,
                    n, kept, plateau));
    result.draw(
        fmt::format("growth-{}", n), fmt::format("Entropy of the weights as d_k grows, {} keys", n),
        fmt::format(
            "Even weights have {:.2f} nats. Unscaled falls to {:.3f} at d_k = 1024; scaled levels off at {:.3f}.", even,
            last, kept),
        Lines{{"d_k", true}, {"entropy, nats"}, {raw, frozen, scaled, level, most}, kBand});
  }
}

// Entropy against the temperature τ, in units of √d_k (the sweep that 001 proposes, at the start of training).
void measure_temperature(Work& work, Result& result) {
  struct Cell {
    double tau;
  };
  struct Found {
    double entropy, max_weight;
  };
  const std::vector<Cell> cells = {{0.125}, {0.25}, {0.5}, {1}, {2}, {4}, {8}};
  constexpr std::int64_t kTokens = 64, kSize = 64;
  const auto found = work.repeat(0.2, cells, repeats_of(work), [&](const Cell& cell, std::size_t r) {
    Random random(work.settings().seed, "entropy/temperature", r);
    const Matrix q = normal_matrix(random, kTokens, kSize), k = normal_matrix(random, kTokens, kSize);
    const Rows rows = measure({.q = q, .k = k, .scale = 1 / (cell.tau * std::sqrt(double{kSize}))});
    return Found{mean(rows.entropy), mean(rows.max_weight)};
  });
  Series entropy{"entropy ÷ ln 64", {}}, largest{"largest weight", {}};
  const double even = std::log(double{kTokens});
  for (std::size_t i = 0; i < cells.size(); ++i) {
    const std::string key = fmt::format("entropy.temperature.{}", cells[i].tau);
    result.measure(key + ".entropy", column(found[i], &Found::entropy));
    result.measure(key + ".max_weight", column(found[i], &Found::max_weight));
    std::vector<double> relative;
    for (const Found& f : found[i]) relative.push_back(f.entropy / even);
    entropy.points.push_back(point(cells[i].tau, relative));
    largest.points.push_back(point(cells[i].tau, column(found[i], &Found::max_weight)));
  }
  const auto text = [&](const char* tau) { return result.at(fmt::format("entropy.temperature.{}.entropy", tau)); };
  result.findings.push_back(
      fmt::format("A temperature of half √d_k takes the entropy over 64 keys from {:.2f} to {:.2f} nats; one of twice "
                  "√d_k, to {:.2f}.",
                  text("1"), text("0.5"), text("2")));
  result.draw("temperature", "Temperature τ in units of √d_k, d_k = 64, 64 keys",
              fmt::format("Entropy rises with τ, from {:.2f} of its maximum at τ = √d_k/8 (no scaling) through {:.2f} "
                          "at √d_k to {:.3f} at 8 √d_k; the largest weight falls.",
                          entropy.points.front().y, entropy.points[3].y, entropy.points.back().y),
              Lines{{"τ / √d_k", true}, {"share"}, {entropy, largest}, kBand});
}

class Entropy : public Experiment {
 public:
  std::string name() const override { return "entropy"; }
  std::string question() const override {
    return "With Q and K fixed and d_k growing, how even do the attention weights stay, with and without scaling?";
  }
  Cost cost() const override { return {0.4, 4}; }

  Result run(Work& work) const override {
    Result result;
    result.settings = fmt::format(
        "64 queries; 10 and 64 keys; unit normal Q and K with 1024 components, of which the first d_k are used. "
        "Temperature: d_k 64. {} seeds.",
        repeats_of(work));
    measure_growth(work, result);
    measure_temperature(work, result);
    return result;
  }
};

}  // namespace
}  // namespace entropy_experiment

std::unique_ptr<Experiment> make_entropy() { return std::make_unique<entropy_experiment::Entropy>(); }

}  // namespace keel::lab
