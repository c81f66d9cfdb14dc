#include <fmt/format.h>

#include <array>
#include <cmath>

#include "lab/experiments.h"
#include "lab/initialisation.h"
#include "lab/measure.h"
#include "lab/statistics.h"

namespace keel::lab {
namespace saturation_experiment {
namespace {

constexpr double kSaturated = 0.99;
constexpr std::array<std::int64_t, 5> kKeys = {4, 16, 64, 256, 1024};
constexpr std::int64_t kRows = 64;  // queries per call; with fewer keys they come in several sequences

std::size_t repeats_of(const Work& work) { return work.repeats(10, 60); }

// The largest weight of each row of one call, and its statistics.
struct Arm {
  std::vector<double> rows;
  double mean = 0, median = 0, min = 0, share = 0;  // share of rows above kSaturated

  Arm() = default;
  explicit Arm(std::vector<double> max_weight) : rows(std::move(max_weight)) {
    mean = lab::mean(rows);
    median = quantile(rows, 0.5);
    min = quantile(rows, 0.0);
    for (const double w : rows) share += (w > kSaturated ? 1.0 : 0.0) / static_cast<double>(rows.size());
  }
};

template <class Found>
std::vector<double> rows_of(const std::vector<Found>& repeats, Arm Found::*arm) {
  std::vector<double> all;
  for (const Found& found : repeats) all.insert(all.end(), (found.*arm).rows.begin(), (found.*arm).rows.end());
  return all;
}

template <class Found>
void measure_arm(Result& result, const std::string& key, const std::vector<Found>& repeats, Arm Found::*arm) {
  std::vector<Arm> arms;
  for (const Found& found : repeats) arms.push_back(found.*arm);
  result.measure(key + ".mean", column(arms, &Arm::mean));
  result.measure(key + ".median", column(arms, &Arm::median));
  result.measure(key + ".min", column(arms, &Arm::min));
  result.measure(key + ".share", column(arms, &Arm::share));
}

// Mean |ln(p_i / p_j)| of neighbouring keys: how far apart two weights of a row are.
double log_odds(const Matrix& weights) {
  double sum = 0;
  for (std::int64_t i = 0; i < weights.rows; ++i) {
    for (std::int64_t j = 0; j + 1 < weights.columns; j += 2) {
      sum += std::abs(std::log(weights.at(i, j) / weights.at(i, j + 1)));
    }
  }
  return sum / static_cast<double>(weights.rows * (weights.columns / 2));
}

// Unit normal q and k, by d_k and number of keys.
struct SizeCell {
  std::int64_t d, n;
  double cost() const { return static_cast<double>((d + 20) * n) * kRows; }
};
struct SizeFound {
  Arm raw, scaled;
  double max_logit = 0;  // mean over rows, unscaled
  double far = 0;        // share of rows with a score of 25 or more in size
  double odds_raw = 0, odds_scaled = 0;
};

SizeFound measure_size(const SizeCell& cell, std::uint64_t seed, std::size_t repeat) {
  Random random(seed, fmt::format("saturation/{}/{}", cell.d, cell.n), repeat);
  const std::int64_t sequences = std::max(kRows / cell.n, std::int64_t{1});
  const Matrix q = normal_matrix(random, kRows, cell.d), k = normal_matrix(random, cell.n * sequences, cell.d);
  const bool odds = cell.n == 64;
  const Rows raw = measure({.q = q, .k = k, .scale = 1.0, .sequences = sequences, .weights = odds});
  const Rows scaled = measure({.q = q, .k = k, .sequences = sequences, .weights = odds});
  SizeFound f{Arm(raw.max_weight), Arm(scaled.max_weight), mean(raw.max_logit)};
  if (odds) {
    f.odds_raw = log_odds(raw.weights);
    f.odds_scaled = log_odds(scaled.weights);
  }
  if (cell.d == 64) {
    const Rows negative = measure({.q = q, .k = k, .scale = -1.0, .sequences = sequences});
    for (std::size_t i = 0; i < raw.max_logit.size(); ++i) {
      const bool far = std::max(raw.max_logit[i], negative.max_logit[i]) >= 25;
      f.far += (far ? 1.0 : 0.0) / static_cast<double>(raw.max_logit.size());
    }
  }
  return f;
}

// What the figures show.
struct SizeFigures {
  Series raw{"unscaled", {}}, scaled{"divided by √d_k", {}};  // 64 keys
  Heatmap share{"keys", "d_k", "share of rows with a weight above 0.99", {}, {}, {}, 0, 1};
  Heatmap median{"keys", "d_k", "median of the largest weight", {}, {}, {}, 0, 1};
  std::vector<double> raw_rows, scaled_rows;  // d_k = 64, 64 keys
};

SizeFigures record_sizes(const std::vector<SizeCell>& cells, const std::vector<std::vector<SizeFound>>& found,
                         Result& result) {
  using Found = SizeFound;
  SizeFigures figures;
  auto& [raw, scaled, share, median, raw_rows, scaled_rows] = figures;
  for (std::size_t i = 0; i < cells.size(); ++i) {
    const auto& [d, n] = cells[i];
    const std::string size = fmt::format("d{}.n{}", d, n);
    measure_arm(result, "saturation.raw." + size, found[i], &Found::raw);
    measure_arm(result, "saturation.scaled." + size, found[i], &Found::scaled);
    share.values.push_back(result.at("saturation.raw." + size + ".share"));
    median.values.push_back(result.at("saturation.scaled." + size + ".median"));
    if (d == 1) share.rows.push_back(fmt::format("{}", n));
    if (n == kKeys.front()) share.columns.push_back(fmt::format("{}", d));
    if (d == 64) {
      result.measure(fmt::format("saturation.max_logit.d64.n{}", n), column(found[i], &Found::max_logit));
      result.measure(fmt::format("saturation.far.d64.n{}", n), column(found[i], &Found::far));
    }
    if (n != 64) continue;
    std::vector<double> factor;
    for (const Found& f : found[i]) factor.push_back(f.odds_raw - f.odds_scaled);
    result.measure(fmt::format("saturation.log_sharper.d{}", d), factor);
    const auto x = static_cast<double>(d);
    raw.points.push_back(quantile_point(x, rows_of(found[i], &Found::raw)));
    scaled.points.push_back(quantile_point(x, rows_of(found[i], &Found::scaled)));
    if (d != 64) continue;
    raw_rows = rows_of(found[i], &Found::raw);
    scaled_rows = rows_of(found[i], &Found::scaled);
  }
  median.rows = share.rows;
  median.columns = share.columns;
  return figures;
}

void draw_sizes(SizeFigures figures, Result& result) {
  auto& [raw, scaled, share, median, raw_rows, scaled_rows] = figures;
  const double half = result.at("saturation.raw.d64.n64.median"), sure = result.at("saturation.raw.d64.n64.share");
  result.findings.push_back(
      fmt::format("Unscaled, d_k = 64 and 64 keys: the median row puts {:.0f} % on one key, {:.0f} % of rows put more "
                  "than 99 % there, and the flattest row of a call still puts {:.0f} % there. Divided by √d_k, the "
                  "median is {:.1f} %.",
                  100 * half, 100 * sure, 100 * result.at("saturation.raw.d64.n64.min"),
                  100 * result.at("saturation.scaled.d64.n64.median")));
  result.draw("size", "The largest weight of a row against d_k, 64 keys",
              fmt::format("Unscaled, the median row rises from {:.2f} at d_k = 1 to {:.2f} at 64 and {:.2f} at 1024. "
                          "Scaled, it stays near {:.2f} from d_k = 16 on.",
                          raw.points.front().y, half, raw.points.back().y, scaled.points.back().y),
              Lines{{"d_k", true}, {"largest weight"}, {raw, scaled}, "5 to 95 % of rows, line: median"});
  std::vector<double> edges;
  for (int i = 0; i <= 25; ++i) edges.push_back(0.04 * i);
  result.draw("distribution", "The largest weight of a row, d_k = 64, 64 keys",
              fmt::format("Unscaled rows are spread over the whole range, piling up at 1 ({:.0f} % above 0.99); "
                          "scaled rows lie close together near {:.2f}.",
                          100 * sure, quantile(scaled_rows, 0.5)),
              Distribution{{"largest weight"},
                           edges,
                           {{"unscaled", shares(raw_rows, edges)}, {"divided by √d_k", shares(scaled_rows, edges)}}});
  result.draw(
      "share", "Unscaled: share of rows that put more than 99 % on one key",
      fmt::format("Darker as d_k grows, lighter with more keys. With 4 and with 1024 keys: {:.0f} % and {:.0f} % of "
                  "rows at d_k = 16, {:.0f} % and {:.0f} % at 64, {:.0f} % and {:.0f} % at 1024.",
                  100 * result.at("saturation.raw.d16.n4.share"), 100 * result.at("saturation.raw.d16.n1024.share"),
                  100 * result.at("saturation.raw.d64.n4.share"), 100 * result.at("saturation.raw.d64.n1024.share"),
                  100 * result.at("saturation.raw.d1024.n4.share"),
                  100 * result.at("saturation.raw.d1024.n1024.share")),
      std::move(share));
  result.draw(
      "scaled", "Divided by √d_k: median of the largest weight",
      fmt::format(
          "Nearly the same in every column from d_k = 16 on; it falls with the number of keys, from {:.2f} at 4 keys "
          "to {:.3f} at 1024.",
          result.at("saturation.scaled.d64.n4.median"), result.at("saturation.scaled.d64.n1024.median")),
      std::move(median));
}

void measure_sizes(Work& work, Result& result) {
  std::vector<SizeCell> cells;
  for (const std::int64_t n : kKeys) {
    for (std::int64_t d = 1; d <= 1024; d *= 2) cells.push_back({d, n});
  }
  const auto found = work.repeat(0.7, cells, repeats_of(work), [&](const SizeCell& cell, std::size_t repeat) {
    return measure_size(cell, work.settings().seed, repeat);
  });
  draw_sizes(record_sizes(cells, found, result), result);
}

// Each initialisation at d_k = 64.
void measure_initialisations(Work& work, Result& result) {
  struct Cell {
    const Initialisation* start;
    std::int64_t n;
    double cost() const { return static_cast<double>(n + 20); }
  };
  struct Found {
    Arm raw, scaled;
  };
  std::vector<Cell> cells;
  for (const std::int64_t n : {4, 64}) {
    for (const Initialisation& start : initialisations()) cells.push_back({&start, n});
  }
  const auto found = work.repeat(0.3, cells, repeats_of(work), [&](const Cell& cell, std::size_t r) {
    Random random(work.settings().seed, fmt::format("saturation/{}/{}", cell.start->id, cell.n), r);
    const Projection p = project(*cell.start, random, kRows, 64);
    const std::int64_t sequences = kRows / cell.n;
    return Found{Arm(measure({.q = p.q, .k = p.k, .scale = 1.0, .sequences = sequences}).max_weight),
                 Arm(measure({.q = p.q, .k = p.k, .sequences = sequences}).max_weight)};
  });
  Series raw{"unscaled", {}}, scaled{"divided by √d_k", {}}, even{"even weights: 1/64", {}, Role::reference};
  std::vector<std::string> names;
  for (std::size_t i = 0; i < cells.size(); ++i) {
    const auto& [start, n] = cells[i];
    const std::string key = fmt::format("{}.n{}", start->id, n);
    measure_arm(result, "saturation.init.raw." + key, found[i], &Found::raw);
    measure_arm(result, "saturation.init.scaled." + key, found[i], &Found::scaled);
    if (n != 64) continue;
    const auto row = static_cast<double>(names.size());
    names.push_back(start->name);
    raw.points.push_back(quantile_point(row, rows_of(found[i], &Found::raw)));
    scaled.points.push_back(quantile_point(row, rows_of(found[i], &Found::scaled)));
    even.points.push_back({row, 1.0 / 64, 1.0 / 64, 1.0 / 64});
  }
  result.findings.push_back(
      fmt::format("It depends on the initialisation. Unscaled, at d_k = 64, the median row puts {:.0f} % on one of "
                  "64 keys with Kaiming, {:.0f} % with Xavier on a fused matrix and {:.0f} % with GPT-2's.",
                  100 * result.at("saturation.init.raw.kaiming.n64.median"),
                  100 * result.at("saturation.init.raw.xavier_fused.n64.median"),
                  100 * result.at("saturation.init.raw.gpt2.n64.median")));
  result.draw(
      "initialisation", "The largest weight by initialisation, d_k = 64, 64 keys",
      fmt::format("Unscaled medians from {:.2f} (GPT-2) to {:.2f} (Kaiming); scaled from {:.3f} to {:.2f}.",
                  result.at("saturation.init.raw.gpt2.n64.median"), result.at("saturation.init.raw.kaiming.n64.median"),
                  result.at("saturation.init.scaled.gpt2.n64.median"),
                  result.at("saturation.init.scaled.kaiming.n64.median")),
      Dots{{"largest weight", true}, std::move(names), {raw, scaled, even}, "5 to 95 % of rows, dot: median"});
}

class Saturation : public Experiment {
 public:
  std::string name() const override { return "saturation"; }
  std::string question() const override {
    return "How much of a row's attention goes to its largest weight, and when does the softmax become one-hot?";
  }
  Cost cost() const override { return {3, 20}; }

  Result run(Work& work) const override {
    Result result;
    result.settings = fmt::format(
        "Unit normal q and k, d_k 1 to 1024, 4 to 1024 keys, 64 queries (in several sequences if there are fewer "
        "keys); initialisations with d_model 768, d_k 64. {} seeds.",
        repeats_of(work));
    measure_sizes(work, result);
    measure_initialisations(work, result);
    return result;
  }
};

}  // namespace
}  // namespace saturation_experiment

std::unique_ptr<Experiment> make_saturation() { return std::make_unique<saturation_experiment::Saturation>(); }

}  // namespace keel::lab
