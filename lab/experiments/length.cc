#include <fmt/format.h>

#include <cmath>

#include "lab/experiments.h"
#include "lab/measure.h"
#include "lab/statistics.h"

namespace keel::lab {
namespace length_experiment {
namespace {

constexpr std::int64_t kSize = 64;       // d_k
constexpr std::int64_t kQueries = 16;    // per call
constexpr std::int64_t kReference = 64;  // keys at which scaling by log n equals scaling by √d_k alone
constexpr const char* kBand = "one standard deviation over seeds";

std::size_t repeats_of(const Work& work) { return work.repeats(6, 24); }

struct Arm {
  double relative = 0;   // entropy ÷ ln n
  double effective = 0;  // exp(entropy): how many keys share the attention
  double max_weight = 0;
};

struct Cell {
  std::int64_t n;
  double cost() const { return static_cast<double>(n); }
};
struct Found {
  Arm raw, scaled, logarithmic;
};

// Lines against the number of keys: unscaled, scaled, scaled by log n.
struct Figures {
  std::vector<Series> entropy, largest;
};

Figures record(const std::vector<Cell>& cells, const std::vector<std::vector<Found>>& found, Result& result) {
  struct Line {
    const char *id, *name;
    Arm Found::*arm;
  };
  Figures figures;
  auto& [entropy, largest] = figures;
  for (const Line& line : {Line{"raw", "unscaled", &Found::raw}, Line{"scaled", "divided by √d_k", &Found::scaled},
                           Line{"log", "log n, divided by √d_k", &Found::logarithmic}}) {
    entropy.push_back({line.name, {}});
    largest.push_back({line.name, {}});
    for (std::size_t i = 0; i < cells.size(); ++i) {
      std::vector<Arm> arms;
      for (const Found& f : found[i]) arms.push_back(f.*line.arm);
      const auto x = static_cast<double>(cells[i].n);
      const std::string key = fmt::format("length.{}.n{}", line.id, cells[i].n);
      result.measure(key + ".relative", column(arms, &Arm::relative));
      result.measure(key + ".effective", column(arms, &Arm::effective));
      result.measure(key + ".max_weight", column(arms, &Arm::max_weight));
      entropy.back().points.push_back(point(x, column(arms, &Arm::relative)));
      largest.back().points.push_back(point(x, column(arms, &Arm::max_weight)));
    }
  }
  Series even{"even weights: 1/n", {}, Role::reference};
  for (const Cell& cell : cells) {
    const double share = 1 / static_cast<double>(cell.n);
    even.points.push_back({static_cast<double>(cell.n), share, share, share});
  }
  largest.push_back(std::move(even));
  return figures;
}

void draw(const Figures& figures, Result& result) {
  const auto& [entropy, largest] = figures;
  result.findings.push_back(fmt::format(
      "Divided by √d_k, attention thins out as keys are added: the largest weight falls from {:.2f} at 16 keys to "
      "{:.4f} at 65,536, where the attention is shared by about {:.0f} % of them. √d_k makes up for the head size, "
      "not for the length.",
      result.at("length.scaled.n16.max_weight"), result.at("length.scaled.n65536.max_weight"),
      100 * result.at("length.scaled.n65536.effective") / 65536));
  result.findings.push_back(
      fmt::format("With a factor that grows as log n the largest weight at 65,536 keys is {:.3f}, and entropy is "
                  "{:.0f} % of its maximum instead of {:.0f} %.",
                  result.at("length.log.n65536.max_weight"), 100 * result.at("length.log.n65536.relative"),
                  100 * result.at("length.scaled.n65536.relative")));
  result.draw("entropy", "Entropy ÷ ln n against the number of keys",
              fmt::format("Divided by √d_k it climbs from {:.2f} at 16 keys to {:.2f} at 65,536, towards even weights; "
                          "with log n it ends at {:.2f}, unscaled at {:.2f}.",
                          entropy[1].points.front().y, entropy[1].points.back().y, entropy[2].points.back().y,
                          entropy[0].points.back().y),
              Lines{{"keys", true}, {"entropy ÷ ln n"}, entropy, kBand});
  result.draw("largest", "The largest weight against the number of keys",
              fmt::format("Both axes logarithmic. Divided by √d_k it falls from {:.2f} to {:.4f}, parallel to 1/n but "
                          "above it; unscaled it is still {:.2f} at 65,536 keys.",
                          largest[1].points.front().y, largest[1].points.back().y, largest[0].points.back().y),
              Lines{{"keys", true}, {"largest weight", true}, largest, kBand});
}

class Length : public Experiment {
 public:
  std::string name() const override { return "length"; }
  std::string question() const override {
    return "What does 1/√d_k leave unsettled: does attention stay sharp as the number of keys grows?";
  }
  Cost cost() const override { return {1.6, 6.5}; }

  Result run(Work& work) const override {
    Result result;
    result.settings = fmt::format(
        "Unit normal q and k, d_k 64, 16 queries, 16 to 65,536 keys; statistics are streamed, without holding a matrix "
        "of weights. “log n”: scale = (ln n / ln {}) / √d_k. {} seeds.",
        kReference, repeats_of(work));

    std::vector<Cell> cells;
    for (std::int64_t n = 16; n <= 65536; n *= 4) cells.push_back({n});
    const auto found = work.repeat(1.0, cells, repeats_of(work), [&](const Cell& cell, std::size_t r) {
      Random random(work.settings().seed, fmt::format("length/{}", cell.n), r);
      const Matrix q = normal_matrix(random, kQueries, kSize), k = normal_matrix(random, cell.n, kSize);
      const double log_n = std::log(static_cast<double>(cell.n)), unit = 1 / std::sqrt(double{kSize});
      const auto arm = [&](double scale) {
        const Rows rows = measure({.q = q, .k = k, .scale = scale});
        const double entropy = mean(rows.entropy);
        return Arm{entropy / log_n, std::exp(entropy), mean(rows.max_weight)};
      };
      return Found{arm(1.0), arm(unit), arm(unit * log_n / std::log(double{kReference}))};
    });
    draw(record(cells, found, result), result);
    return result;
  }
};

}  // namespace
}  // namespace length_experiment

std::unique_ptr<Experiment> make_length() { return std::make_unique<length_experiment::Length>(); }

}  // namespace keel::lab
