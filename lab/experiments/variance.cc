#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

#include "lab/experiments.h"
#include "lab/initialisation.h"
#include "lab/measure.h"
#include "lab/statistics.h"

namespace keel::lab {
namespace variance_experiment {
namespace {

constexpr std::int64_t kTokens = 64;
constexpr std::array<std::int64_t, 4> kSizes = {4, 16, 64, 256};  // d_k
constexpr const char* kBand = "one standard deviation over seeds";

// Queries, and keys, from which the law is measured, and pairs for its exceptions: more where each has few components.
// The law's come in sequences of kTokens.
std::int64_t tokens_for(std::int64_t d) { return std::clamp<std::int64_t>(16384 / d, kTokens, 4096); }
std::int64_t pairs_for(std::int64_t d) { return std::max<std::int64_t>(16384 / d, 512); }

std::size_t lawful_repeats(const Work& work) { return work.repeats(20, 200); }
std::size_t start_repeats(const Work& work) { return work.repeats(12, 100); }
std::size_t range_repeats(const Work& work) { return work.repeats(8, 40); }

// Mean and variance of all scores of a call, from what it reports of its rows.
struct Moments {
  double mean = 0, var = 0;
};
Moments moments(const Rows& rows) {
  double first = 0, second = 0;
  for (std::size_t i = 0; i < rows.logit_mean.size(); ++i) {
    first += rows.logit_mean[i];
    second += rows.logit_var[i] + rows.logit_mean[i] * rows.logit_mean[i];
  }
  const auto n = static_cast<double>(rows.logit_mean.size());
  return {.mean = first / n, .var = second / n - (first / n) * (first / n)};
}

// Var(q·k) against d_k, raw and divided by √d_k.
void measure_law(Work& work, Result& result) {
  struct Cell {
    std::int64_t d;
    double cost() const { return 200.0 + static_cast<double>(d); }
  };
  struct Found {
    double mean, var, sd, scaled, absolute;
  };
  std::vector<Cell> cells;
  for (std::int64_t d = 1; d <= 1024; d *= 2) cells.push_back({d});
  const auto found = work.repeat(0.35, cells, lawful_repeats(work), [&](const Cell& cell, std::size_t r) {
    Random random(work.settings().seed, fmt::format("variance/law/{}", cell.d), r);
    const Matrix q = normal_matrix(random, tokens_for(cell.d), cell.d), k = normal_matrix(random, q.rows, cell.d);
    const std::int64_t sequences = q.rows / kTokens;
    const Moments raw = moments(measure({.q = q, .k = k, .scale = 1.0, .sequences = sequences}));
    const Moments scaled = moments(measure({.q = q, .k = k, .sequences = sequences}));
    double absolute = 0;
    for (std::int64_t i = 0; i < q.rows; ++i) absolute += std::abs(dot(q.row(i), k.row(i)));
    absolute /= static_cast<double>(q.rows);
    return Found{raw.mean, raw.var, std::sqrt(raw.var), scaled.var, absolute};
  });

  Series raw{"q·k", {}}, scaled{"q·k / √d_k", {}}, theory{"theory: d_k", {}, Role::theory},
      one{"theory: 1", {}, Role::theory};
  std::vector<std::vector<double>> logs(lawful_repeats(work));  // of the variance, for each repeat
  std::vector<double> log_sizes;
  for (std::size_t i = 0; i < cells.size(); ++i) {
    const auto d = static_cast<double>(cells[i].d);
    const std::string key = fmt::format("variance.unit.d{}", cells[i].d);
    result.measure(key + ".mean", column(found[i], &Found::mean));
    result.measure(key + ".var", column(found[i], &Found::var));
    result.measure(key + ".sd", column(found[i], &Found::sd));
    result.measure(key + ".scaled_var", column(found[i], &Found::scaled));
    result.measure(key + ".absolute", column(found[i], &Found::absolute));
    raw.points.push_back(point(d, column(found[i], &Found::var)));
    scaled.points.push_back(point(d, column(found[i], &Found::scaled)));
    theory.points.push_back({d, d, d, d});
    one.points.push_back({d, 1, 1, 1});
    log_sizes.push_back(std::log(d));
    for (std::size_t r = 0; r < logs.size(); ++r) logs[r].push_back(std::log(found[i][r].var));
  }
  std::vector<double> slopes;
  for (const auto& line : logs) slopes.push_back(slope(log_sizes, line));
  const double exponent = result.measure("variance.unit.exponent", slopes);
  result.findings.push_back(
      fmt::format("With unit normal q and k the variance of q·k grows as d_k to the power {:.3f}; at d_k = 64 it is "
                  "{:.1f}, and {:.3f} after division by √d_k.",
                  exponent, result.at("variance.unit.d64.var"), result.at("variance.unit.d64.scaled_var")));
  result.draw("law", "The variance of q·k grows with d_k",
              fmt::format("Both axes logarithmic. Raw: a straight line of slope {:.3f}, from {:.2f} at d_k = 1 to "
                          "{:.0f} at d_k = 1024. Scaled: level, {:.3f} at d_k = 1024.",
                          exponent, raw.points.front().y, raw.points.back().y, scaled.points.back().y),
              Lines{{"d_k", true}, {"variance", true}, {raw, theory, scaled, one}, kBand});
}

// What the law assumes: zero mean, and q independent of k. Pairs (q, k) with one assumption broken at a time.
void measure_exceptions(Work& work, Result& result) {
  struct Case {
    const char *id, *name;
    double mean, correlation;
    double var_per_size, mean_per_size;  // theory: Var(q·k)/d_k and E[q·k]/d_k
  };
  constexpr double kMean = 0.5, kCorrelation = 0.5;
  const std::array<Case, 4> cases{{
      {"independent", "independent, mean 0", 0, 0, 1, 0},
      {"shifted", "mean 0.5 in q and k", kMean, 0, 1 + 2 * kMean * kMean, kMean * kMean},
      {"correlated", "correlation 0.5 of q and k", 0, kCorrelation, 1 + kCorrelation * kCorrelation, kCorrelation},
      {"same", "q = k", 0, 1, 2, 1},
  }};
  struct Cell {
    const Case* c;
    std::int64_t d;
    double cost() const { return 10.0 + static_cast<double>(d); }
  };
  std::vector<Cell> cells;
  for (const Case& c : cases) {
    for (const std::int64_t d : {1, 4, 16, 64, 256}) cells.push_back({&c, d});
  }
  const auto found = work.repeat(0.2, cells, lawful_repeats(work), [&](const Cell& cell, std::size_t r) {
    const auto& [c, d] = cell;
    Random random(work.settings().seed, fmt::format("variance/exceptions/{}/{}", c->id, d), r);
    const std::int64_t pairs = pairs_for(d);
    Matrix q(pairs, d), k(pairs, d);
    random.normal(q.values, 1, c->mean);
    random.normal(k.values, 1, c->mean);
    for (std::size_t i = 0; i < k.values.size(); ++i) {
      k.values[i] = c->correlation * q.values[i] + std::sqrt(1 - c->correlation * c->correlation) * k.values[i];
    }
    // Each pair is a sequence of one key, so the row's mean score is q·k itself.
    const std::vector<double> score = measure({.q = q, .k = k, .scale = 1.0, .sequences = pairs}).logit_mean;
    const double sd = standard_deviation(score);
    return Moments{.mean = mean(score), .var = sd * sd};
  });

  std::vector<Series> series;
  Table table{{"q and k", "d_k", "mean of q·k", "theory", "variance of q·k", "theory "}, {}};
  for (std::size_t i = 0; i < cells.size(); ++i) {
    const auto& [c, size] = cells[i];
    const auto d = static_cast<double>(size);
    if (i == 0 || c != cells[i - 1].c) {
      series.push_back({c->name, {}});
      series.push_back({fmt::format("theory: {}", c->var_per_size), {}, Role::theory});
    }
    const std::string key = fmt::format("variance.{}.d{}", c->id, size);
    const double measured_mean = result.measure(key + ".mean", column(found[i], &Moments::mean));
    const double measured_var = result.measure(key + ".var", column(found[i], &Moments::var));
    const double spread = result.measurements[key + ".var"].spread;
    const Point ratio{d, measured_var / d, (measured_var - spread) / d, (measured_var + spread) / d};
    series[series.size() - 2].points.push_back(ratio);
    series.back().points.push_back({d, c->var_per_size, c->var_per_size, c->var_per_size});
    table.rows.push_back(
        {std::string(c->name), d, measured_mean, d * c->mean_per_size, measured_var, d * c->var_per_size});
  }
  result.findings.push_back(
      fmt::format("The law needs zero means and independence: with q = k the mean is no longer 0 but {:.1f} at d_k = "
                  "64, which √d_k cannot remove, and the variance doubles to {:.0f}.",
                  result.at("variance.same.d64.mean"), result.at("variance.same.d64.var")));
  result.draw("exceptions", "What breaks the law: Var(q·k) / d_k",
              "Each case stays level as d_k grows, near 1, 1.5, 1.25 and 2: a different constant, the same growth.",
              Lines{{"d_k", true}, {"Var(q·k) / d_k"}, std::move(series), kBand});
  result.draw("exceptions-table", "The same cases, with their means", "Pairs (q, k), one assumption broken at a time.",
              std::move(table));
}

// Var(q·k) for each initialisation of W_Q and W_K.
void measure_initialisations(Work& work, Result& result) {
  struct Cell {
    const Initialisation* start;
    std::int64_t d;
    double cost() const { return 100.0 + static_cast<double>(d); }
  };
  struct Found {
    double activation, var, scaled;
  };
  std::vector<Cell> cells;
  for (const Initialisation& start : initialisations()) {
    for (const std::int64_t d : kSizes) cells.push_back({&start, d});
  }
  const auto found = work.repeat(0.35, cells, start_repeats(work), [&](const Cell& cell, std::size_t r) {
    Random random(work.settings().seed, fmt::format("variance/{}/{}", cell.start->id, cell.d), r);
    const Projection p = project(*cell.start, random, kTokens, cell.d);
    return Found{dot(p.q.values, p.q.values) / static_cast<double>(p.q.values.size()),
                 moments(measure({.q = p.q, .k = p.k, .scale = 1.0})).var, moments(measure({.q = p.q, .k = p.k})).var};
  });

  std::vector<Series> lines;
  Series measured{"measured", {}}, theory{"theory", {}, Role::theory};
  std::vector<std::string> names;
  Table table{{"initialisation", "variance of a weight", "variance of q", "theory", "Var(q·k)", "theory ",
               "Var(q·k/√d_k)", "scale that gives variance 1"},
              {}};
  for (std::size_t i = 0; i < cells.size(); ++i) {
    const auto& [start, size] = cells[i];
    const auto d = static_cast<double>(size);
    const std::string key = fmt::format("variance.init.{}.d{}", start->id, size);
    const double activation = result.measure(key + ".activation", column(found[i], &Found::activation));
    const double var = result.measure(key + ".var", column(found[i], &Found::var));
    const double scaled = result.measure(key + ".scaled_var", column(found[i], &Found::scaled));
    if (size == kSizes.front()) lines.push_back({start->name, {}});
    lines.back().points.push_back(point(d, column(found[i], &Found::scaled)));
    if (size != 64) continue;
    const auto row = static_cast<double>(names.size());
    const double expected = start->logit_variance(kModelSize, d);
    names.push_back(start->name);
    measured.points.push_back(point(row, column(found[i], &Found::scaled)));
    theory.points.push_back({row, expected / d, expected / d, expected / d});
    table.rows.push_back({start->name, start->rule, activation, start->activation_variance(kModelSize, d), var,
                          expected, scaled, fmt::format("{:.2f} / √d_k", 1 / std::sqrt(scaled))});
  }
  const auto scaled = [&](const char* id) { return result.at(fmt::format("variance.init.{}.d64.scaled_var", id)); };
  result.findings.push_back(fmt::format(
      "Division by √d_k gives unit variance only where the projections do: Var(q·k/√d_k) at d_k = 64 is {:.2f} with "
      "Xavier on a d × d matrix, {:.2f} with Xavier on a fused QKV matrix, {:.2f} with Xavier per head, {:.2f} with "
      "Kaiming and {:.3f} with GPT-2's standard deviation of 0.02.",
      scaled("xavier_square"), scaled("xavier_fused"), scaled("xavier_head"), scaled("kaiming"), scaled("gpt2")));
  result.draw(
      "initialisation", "Var(q·k/√d_k) at the start of training, d_k = 64",
      fmt::format(
          "Logarithmic axis. Every point lies on its theoretical value. From {:.3f} (GPT-2) to {:.2f} (Kaiming), "
          "with 1 in between.",
          scaled("gpt2"), scaled("kaiming")),
      Dots{{"Var(q·k / √d_k)", true}, std::move(names), {std::move(measured), std::move(theory)}, kBand});
  result.draw("initialisation-table", "Initialisations, d_model = 768, d_k = 64",
              "Inputs are unit normal tokens. Theory: Var(q) = d·Var(w), Var(q·k) = d_k·Var(q)·Var(k).",
              std::move(table));
  result.draw("initialisation-sizes", "Var(q·k/√d_k) against d_k",
              "Level in d_k for every initialisation except Xavier per head, whose weights depend on d_k.",
              Lines{{"d_k", true}, {"Var(q·k / √d_k)", true}, std::move(lines), kBand});
}

// The extremes and the shape of q·k at the sizes 004 names: batch 4, 8 heads, 100 tokens, d_k 64.
void measure_range(Work& work, Result& result) {
  constexpr std::int64_t kBatch = 4, kHeads = 8, kLength = 100, kSize = 64;
  struct Found {
    double raw, scaled, kurtosis;
    std::vector<double> scores;
  };
  const auto found = work.repeat(0.1, std::vector<int>(1), range_repeats(work), [&](int, std::size_t r) {
    Random random(work.settings().seed, "variance/range", r);
    constexpr std::int64_t kSequences = kBatch * kHeads;
    const Matrix q = normal_matrix(random, kSequences * kLength, kSize), k = normal_matrix(random, q.rows, kSize);
    const auto largest = [&](double scale) {  // of scale·(q·k)
      return quantile(measure({.q = q, .k = k, .scale = scale, .sequences = kSequences}).max_logit, 1.0);
    };
    Found f{std::max(largest(1.0), largest(-1.0)), std::max(largest(0.125), largest(-0.125)), 0, {}};

    // The shape needs the scores themselves: those of the first head.
    double second = 0, fourth = 0;
    for (std::int64_t i = 0; i < kLength; ++i) {
      for (std::int64_t j = 0; j < kLength; ++j) {
        const double s = dot(q.row(i), k.row(j));
        f.scores.push_back(s);
        second += s * s;
        fourth += s * s * s * s;
      }
    }
    f.kurtosis = static_cast<double>(f.scores.size()) * fourth / (second * second) - 3;
    return f;
  });
  const double reach = result.measure("variance.range.raw", column(found[0], &Found::raw));
  const double scaled_reach = result.measure("variance.range.scaled", column(found[0], &Found::scaled));
  result.measure("variance.range.excess_kurtosis", column(found[0], &Found::kurtosis));
  std::vector<double> all;
  for (const Found& f : found[0]) all.insert(all.end(), f.scores.begin(), f.scores.end());

  std::vector<double> edges, normal;
  for (int i = -20; i <= 20; ++i) edges.push_back(2.0 * i);
  const auto cumulative = [](double x) { return 0.5 * std::erfc(-x / std::numbers::sqrt2); };
  for (std::size_t i = 0; i + 1 < edges.size(); ++i)
    normal.push_back(cumulative(edges[i + 1] / 8) - cumulative(edges[i] / 8));
  result.findings.push_back(
      fmt::format("Over the 320,000 dot products of a (4, 8, 100, 64) call the largest is {:.1f} in magnitude; divided "
                  "by 8, {:.2f}.",
                  reach, scaled_reach));
  result.draw("range", "q·k at d_k = 64",
              fmt::format("A bell as wide as a normal distribution with standard deviation 8; the largest of 320,000 "
                          "dot products is {:.1f} in magnitude.",
                          reach),
              Distribution{{"q·k"}, edges, {{"measured", shares(all, edges)}, {"normal, sd 8", normal, Role::theory}}});
}

class Variance : public Experiment {
 public:
  std::string name() const override { return "variance"; }
  std::string question() const override {
    return "How large are the dot products q·k, how does that depend on d_k and on the initialisation, and does 1/√d_k "
           "make their variance 1?";
  }
  Cost cost() const override { return {5, 40}; }

  Result run(Work& work) const override {
    Result result;
    result.settings = fmt::format(
        "Law: d_k 1 to 1024, 64 queries × 64 keys in 1 to 64 sequences, most for the smallest d_k, {} seeds. "
        "Exceptions: 512 to 16,384 pairs, {} seeds. Initialisations: d_model 768, 64 tokens, {} seeds. Range: a (4, 8, "
        "100, 64) "
        "call, {} seeds.",
        lawful_repeats(work), lawful_repeats(work), start_repeats(work), range_repeats(work));
    measure_law(work, result);
    measure_exceptions(work, result);
    measure_initialisations(work, result);
    measure_range(work, result);
    return result;
  }
};

}  // namespace
}  // namespace variance_experiment

std::unique_ptr<Experiment> make_variance() { return std::make_unique<variance_experiment::Variance>(); }

}  // namespace keel::lab
