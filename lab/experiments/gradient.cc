#include <fmt/format.h>

#include <array>
#include <cmath>

#include "lab/experiments.h"
#include "lab/initialisation.h"
#include "lab/measure.h"
#include "lab/statistics.h"

namespace keel::lab {
namespace gradient_experiment {
namespace {

constexpr std::array<std::int64_t, 4> kSizes = {4, 16, 64, 256};
constexpr std::array<std::int64_t, 4> kLengths = {4, 16, 64, 256};
constexpr std::int64_t kLargest = 1024;  // d_k at which only rows are looked at
constexpr std::int64_t kTokens = 64;     // where the number of keys does not vary
constexpr std::int64_t kRows = 512;      // at d_k = kLargest
constexpr double kDead = 0.01;           // a row whose Jacobian is below this share of an even row's passes nothing on
constexpr const char* kBand = "one standard deviation over seeds";

std::size_t repeats_of(const Work& work) { return work.repeats(8, 40); }

// One layer, one head, first step, a batch of at least 64 tokens: X → Q, K, V → out, and a gradient of unit normal
// numbers at out. Norms of the gradient at each point.
struct Norms {
  double ds = 0, dq = 0, dk = 0, dv = 0, dw_q = 0, dw_k = 0, dw_v = 0, dx = 0;
};
struct Place {
  const char *id, *name;
  double Norms::*norm;
};
constexpr std::array<Place, 8> kPlaces{{{"ds", "dS", &Norms::ds},
                                        {"dq", "dQ", &Norms::dq},
                                        {"dk", "dK", &Norms::dk},
                                        {"dv", "dV", &Norms::dv},
                                        {"dw_q", "dW_Q", &Norms::dw_q},
                                        {"dw_k", "dW_K", &Norms::dw_k},
                                        {"dw_v", "dW_V", &Norms::dw_v},
                                        {"dx", "dX", &Norms::dx}}};

struct Arm {
  Norms norms;
  std::vector<double> jacobian;  // its norm, for each row
};

struct Cell {
  const Initialisation* start;
  std::int64_t d, n;
  bool only_rows() const { return d == kLargest; }
  double cost() const { return static_cast<double>(d * n) * (kModelSize + static_cast<double>(8 * n)); }
  std::string key() const { return fmt::format("{}.d{}.n{}", start->id, d, n); }
};

struct Found {
  Arm raw, scaled;
};

// dX = dQ·W_Qᵀ + dK·W_Kᵀ + dV·W_Vᵀ
double input_norm(const Gradient& g, const Projection& p, const Matrix& w_v) {
  double sum = 0;
  for (std::int64_t i = 0; i < p.x.rows; ++i) {
    for (std::int64_t c = 0; c < p.x.columns; ++c) {
      const double dx = dot(g.dq.row(i), p.w_q.row(c)) + dot(g.dk.row(i), p.w_k.row(c)) + dot(g.dv.row(i), w_v.row(c));
      sum += dx * dx;
    }
  }
  return std::sqrt(sum);
}

Found first_step(const Cell& cell, Random random) {
  const std::int64_t tokens = std::max(cell.n, cell.only_rows() ? kRows : kTokens), sequences = tokens / cell.n;
  const Projection p = project(*cell.start, random, tokens, cell.d);
  const double sd = std::sqrt(cell.start->weight_variance(kModelSize, static_cast<double>(cell.d)));
  const Matrix w_v = normal_matrix(random, kModelSize, cell.d, sd), v = multiply(p.x, w_v);
  const Matrix dout = normal_matrix(random, tokens, cell.d);
  const auto norms = [&](std::optional<double> scale) {
    const Gradient g = gradient({.q = p.q, .k = p.k, .scale = scale, .sequences = sequences}, v, dout);
    return Norms{.ds = norm(g.ds.values),
                 .dq = norm(g.dq.values),
                 .dk = norm(g.dk.values),
                 .dv = norm(g.dv.values),
                 .dw_q = norm(multiply_transposed(p.x, g.dq).values),
                 .dw_k = norm(multiply_transposed(p.x, g.dk).values),
                 .dw_v = norm(multiply_transposed(p.x, g.dv).values),
                 .dx = input_norm(g, p, w_v)};
  };
  const auto arm = [&](std::optional<double> scale) {
    Arm found{.norms = cell.only_rows() ? Norms{} : norms(scale), .jacobian = {}};
    const Rows rows = measure({.q = p.q, .k = p.k, .scale = scale, .sequences = sequences, .weights = true});
    for (std::int64_t i = 0; i < tokens; ++i) found.jacobian.push_back(jacobian_norm(rows.weights.row(i)));
    return found;
  };
  return {arm(1.0), arm({})};
}

// The norm of the softmax's Jacobian on even weights.
double even_jacobian(std::int64_t n) { return std::sqrt(static_cast<double>(n - 1)) / static_cast<double>(n); }

// Norms of both arms and their ratio under the cell's key, and how many rows pass nothing on.
void record(Result& result, const Cell& cell, const std::vector<Found>& repeats) {
  for (const Place& place : kPlaces) {
    if (cell.only_rows()) break;
    std::vector<double> raw, scaled, ratio;
    for (const Found& found : repeats) {
      raw.push_back(found.raw.norms.*place.norm);
      scaled.push_back(found.scaled.norms.*place.norm);
      ratio.push_back(raw.back() / scaled.back());
    }
    result.measure(fmt::format("gradient.raw.{}.{}", cell.key(), place.id), raw);
    result.measure(fmt::format("gradient.scaled.{}.{}", cell.key(), place.id), scaled);
    result.measure(fmt::format("gradient.ratio.{}.{}", cell.key(), place.id), ratio);
  }
  for (const auto& [id, arm] : {std::pair{"raw", &Found::raw}, std::pair{"scaled", &Found::scaled}}) {
    std::vector<double> dead, jacobian, median;
    for (const Found& found : repeats) {
      const auto& rows = (found.*arm).jacobian;
      double share = 0;
      for (const double j : rows) {
        share += (j < kDead * even_jacobian(cell.n) ? 1.0 : 0.0) / static_cast<double>(rows.size());
      }
      dead.push_back(share);
      jacobian.push_back(mean(rows));
      median.push_back(quantile(rows, 0.5));
    }
    result.measure(fmt::format("gradient.dead.{}.{}", id, cell.key()), dead);
    result.measure(fmt::format("gradient.jacobian.{}.{}", id, cell.key()), jacobian);
    result.measure(fmt::format("gradient.jacobian_median.{}.{}", id, cell.key()), median);
  }
}

Point measured(const Result& result, double x, const std::string& key) {
  const Measurement& m = result.measurements.at(key);
  return {x, m.value, m.value - m.spread, m.value + m.spread};
}

// Norms, ratios and Jacobians against d_k, for weights that give q and k unit variance.
void draw_sizes(Result& result, const std::vector<Cell>& cells, const std::vector<std::vector<Found>>& found) {
  std::vector<Series> norms, ratios;
  Series raw{"unscaled", {}}, scaled{"divided by √d_k", {}}, even{"even weights", {}, Role::reference};
  const auto at_64 = [](const Cell& cell) {
    return cell.start->id == "lecun" && cell.n == kTokens && !cell.only_rows();
  };
  for (const Place& place : kPlaces) {
    const std::string id = place.id;
    Series ratio{place.name, {}}, without{fmt::format("{}, unscaled", place.name), {}},
        with{fmt::format("{}, divided by √d_k", place.name), {}};
    for (const Cell& cell : cells) {
      if (!at_64(cell)) continue;
      const auto x = static_cast<double>(cell.d);
      ratio.points.push_back(measured(result, x, fmt::format("gradient.ratio.{}.{}", cell.key(), id)));
      without.points.push_back(measured(result, x, fmt::format("gradient.raw.{}.{}", cell.key(), id)));
      with.points.push_back(measured(result, x, fmt::format("gradient.scaled.{}.{}", cell.key(), id)));
    }
    if (id != "dk" && id != "dw_k") ratios.push_back(std::move(ratio));  // like those of q
    if (id != "ds" && id != "dw_q" && id != "dw_v") continue;
    norms.push_back(std::move(without));
    norms.push_back(std::move(with));
  }
  for (std::size_t i = 0; i < cells.size(); ++i) {
    if (!at_64(cells[i])) continue;
    std::vector<double> without, with;
    for (const Found& f : found[i]) {
      without.insert(without.end(), f.raw.jacobian.begin(), f.raw.jacobian.end());
      with.insert(with.end(), f.scaled.jacobian.begin(), f.scaled.jacobian.end());
    }
    const auto x = static_cast<double>(cells[i].d);
    raw.points.push_back(quantile_point(x, without));
    scaled.points.push_back(quantile_point(x, with));
    even.points.push_back({x, even_jacobian(kTokens), even_jacobian(kTokens), even_jacobian(kTokens)});
  }
  const auto ratio = [&](const char* id) { return result.at(fmt::format("gradient.ratio.lecun.d64.n64.{}", id)); };
  result.findings.push_back(fmt::format(
      "Removing the scaling at d_k = 64 and 64 keys does not bring the first step's gradient to zero: dW_Q becomes "
      "{:.1f} times as large, dW_K {:.1f}, dW_V {:.1f}, and the gradient with respect to the scores {:.1f}.",
      ratio("dw_q"), ratio("dw_k"), ratio("dw_v"), ratio("ds")));
  result.findings.push_back(
      "Part of that is the factor itself: dQ = scale · dS · K, so dividing the scores by √d_k also divides what "
      "reaches Q, K and their projections. The gradient with respect to the scores, dS, is free of it.");
  result.findings.push_back(fmt::format(
      "What vanishes is the gradient of individual rows. Unscaled, {:.0f} % of rows at d_k = 64 and {:.0f} % at d_k = "
      "256 let through less than a hundredth of what an even row would; scaled, {:.0f} % and {:.0f} %.",
      100 * result.at("gradient.dead.raw.lecun.d64.n64"), 100 * result.at("gradient.dead.raw.lecun.d256.n64"),
      100 * result.at("gradient.dead.scaled.lecun.d64.n64"), 100 * result.at("gradient.dead.scaled.lecun.d256.n64")));
  result.draw("ratio", "Gradient at step 1: unscaled ÷ scaled, against d_k",
              fmt::format("Above 1, the unscaled gradient is larger. At d_k = 64: dS {:.2f}, dQ {:.2f}, dV {:.2f}, "
                          "dW_Q {:.2f}, dW_V {:.2f}, dX {:.2f}.",
                          ratio("ds"), ratio("dq"), ratio("dv"), ratio("dw_q"), ratio("dw_v"), ratio("dx")),
              Lines{{"d_k", true}, {"norm unscaled ÷ scaled", true}, std::move(ratios), kBand});
  result.draw("norms", "Norms of the gradient at step 1 against d_k",
              "The numbers behind the ratios: the gradient with respect to the scores, W_Q and W_V in both arms.",
              Lines{{"d_k", true}, {"norm", true}, std::move(norms), kBand});
  result.draw(
      "jacobian", "The softmax's Jacobian, row by row",
      fmt::format("Median of its norm over rows. Unscaled, it goes from {:.3f} at d_k = 4 to {:.2g} at d_k = "
                  "256, with a band that reaches 0; scaled, it stays near {:.3f}. For even weights it is {:.3f}.",
                  raw.points.front().y, raw.points.back().y, scaled.points.back().y, even_jacobian(kTokens)),
      Lines{{"d_k", true}, {"norm of the Jacobian"}, {raw, scaled, even}, "5 to 95 % of rows, line: median"});
}

void draw_keys(Result& result) {
  Heatmap map{"keys", "d_k", "unscaled ÷ scaled", {}, {}, {}, 0.02, 50, true};
  Heatmap dead{"keys", "d_k", "share of rows that pass on nothing", {}, {}, {}, 0, 1};
  for (const std::int64_t d : kSizes) map.columns.push_back(fmt::format("{}", d));
  for (const std::int64_t n : kLengths) {
    map.rows.push_back(fmt::format("{}", n));
    for (const std::int64_t d : kSizes) {
      map.values.push_back(result.at(fmt::format("gradient.ratio.lecun.d{}.n{}.dw_q", d, n)));
      dead.values.push_back(result.at(fmt::format("gradient.dead.raw.lecun.d{}.n{}", d, n)));
    }
  }
  dead.rows = map.rows;
  dead.columns = map.columns;
  result.draw("keys", "dW_Q at step 1, unscaled ÷ scaled, by d_k and keys",
              fmt::format("At d_k = 64: {:.2f} with 4 keys, {:.2f} with 16, {:.2f} with 64, {:.2f} with 256.",
                          map.values[2], map.values[6], map.values[10], map.values[14]),
              map);
  result.draw("dead", "Unscaled: share of rows whose Jacobian is below 1 % of an even row's",
              fmt::format("At d_k = 64: {:.0f} % with 4 keys, {:.0f} % with 16, {:.0f} % with 64, {:.0f} % with 256.",
                          100 * dead.values[2], 100 * dead.values[6], 100 * dead.values[10], 100 * dead.values[14]),
              dead);
}

void draw_initialisations(Result& result, const std::vector<const Initialisation*>& starts) {
  std::vector<Series> series;
  std::vector<std::string> names;
  for (const auto* start : starts) names.push_back(start->name);
  for (const Place& place : kPlaces) {
    const std::string id = place.id;
    if (id != "ds" && id != "dw_q" && id != "dw_v") continue;
    Series line{place.name, {}};
    for (std::size_t i = 0; i < starts.size(); ++i) {
      line.points.push_back(
          measured(result, static_cast<double>(i), fmt::format("gradient.ratio.{}.d64.n64.{}", starts[i]->id, id)));
    }
    series.push_back(std::move(line));
  }
  result.draw(
      "initialisation", "Gradient at step 1 by initialisation: unscaled ÷ scaled, d_k = 64, 64 keys",
      fmt::format("dW_Q from {:.1f} times (Kaiming) to {:.1f} times (GPT-2); nowhere near 0.",
                  result.at("gradient.ratio.kaiming.d64.n64.dw_q"), result.at("gradient.ratio.gpt2.d64.n64.dw_q")),
      Dots{{"norm unscaled ÷ scaled", true}, std::move(names), std::move(series), kBand});
}

class GradientExperiment : public Experiment {
 public:
  std::string name() const override { return "gradient"; }
  std::string question() const override {
    return "What happens to the gradient at the first step when the scaling is left out: does it vanish, and where?";
  }
  Cost cost() const override { return {11, 55}; }

  Result run(Work& work) const override {
    Result result;
    result.settings = fmt::format(
        "One layer, one head, d_model 768; unit normal tokens, a unit normal gradient at the output; W_Q, W_K and W_V "
        "drawn from the same distribution. Each initialisation with 64 keys at d_k 64; LeCun's (q and k of unit "
        "variance) also with 4 to 256 keys at d_k 4 to 256, and for the Jacobian of rows at d_k 1024. {} seeds.",
        repeats_of(work));
    std::vector<const Initialisation*> starts;
    std::vector<Cell> cells;
    for (const Initialisation& start : initialisations()) {
      if (start.weight_variance == nullptr || start.id == "xavier_square") continue;  // both as LeCun's here
      starts.push_back(&start);
      for (const std::int64_t n : kLengths) {
        for (const std::int64_t d : kSizes) {
          if (start.id == "lecun" || (n == kTokens && d == 64)) cells.push_back({&start, d, n});
        }
        if (start.id == "lecun" && n <= kTokens) cells.push_back({&start, kLargest, n});
      }
    }
    const auto found = work.repeat(1.0, cells, repeats_of(work), [&](const Cell& cell, std::size_t r) {
      return first_step(cell, Random(work.settings().seed, "gradient/" + cell.key(), r));
    });
    for (std::size_t i = 0; i < cells.size(); ++i) record(result, cells[i], found[i]);
    draw_sizes(result, cells, found);
    draw_keys(result);
    draw_initialisations(result, starts);
    return result;
  }
};

}  // namespace
}  // namespace gradient_experiment

std::unique_ptr<Experiment> make_gradient() { return std::make_unique<gradient_experiment::GradientExperiment>(); }

}  // namespace keel::lab
