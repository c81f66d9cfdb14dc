#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "lab/experiments.h"
#include "lab/measure.h"
#include "lab/precision.h"
#include "lab/statistics.h"

namespace keel::lab {
namespace softmax_experiment {
namespace {

double largest_difference(std::span<const double> a, std::span<const double> b) {
  double largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) largest = std::max(largest, std::abs(a[i] - b[i]));
  return largest;
}

std::string row_text(std::span<const double> values) {
  std::vector<std::string> texts;
  for (const double x : values) texts.push_back(number_text(x));
  return fmt::format("[{}]", fmt::join(texts, ", "));
}

Point highest(const Series& series) {
  return *std::max_element(series.points.begin(), series.points.end(),
                           [](const Point& a, const Point& b) { return a.y < b.y; });
}

std::vector<double> peak(double x, std::size_t n) {
  std::vector<double> scores(n, 0.0);
  scores[0] = x;
  return scores;
}

// Where `holds` changes from false to true between low and high.
template <class Predicate>
double threshold(double low, double high, Predicate holds) {
  while (high - low > 1e-9 * std::max(1.0, high)) {
    const double middle = 0.5 * (low + high);
    (holds(middle) ? high : low) = middle;
  }
  return high;
}

// softmax([x, 0, 0, 0]) for x from 0 to 10 (the exercise of 001), and where rows of other lengths reach a weight.
void sweep_one_score(Result& result) {
  Series top{"largest weight p", {}}, derivative{"its derivative p(1 − p)", {}}, jacobian{"Jacobian norm", {}};
  for (int step = 0; step <= 100; ++step) {
    const double x = 0.1 * step;
    const auto p = softmax(peak(x, 4));
    const Matrix j = softmax_jacobian(peak(x, 4));
    const auto add = [&](Series& series, double y) { series.points.push_back({x, y, y, y}); };
    add(top, p[0]);
    add(derivative, j.at(0, 0));
    add(jacobian, norm(j.values));
  }
  Table table{{"keys", "p ≥ 0.9 from x =", "p ≥ 0.99 from x =", "p ≥ 0.999 from x ="}, {}};
  for (const std::size_t n : {2, 4, 10, 64, 1024}) {
    std::vector<Table::Cell> row{static_cast<double>(n)};
    for (const double p : {0.9, 0.99, 0.999}) {
      const double x = threshold(0, 40, [&](double at) { return softmax(peak(at, n))[0] >= p; });
      row.emplace_back(result.exact(fmt::format("softmax.saturates.n{}.p{}", n, p), x));
    }
    table.rows.push_back(std::move(row));
  }
  const double at_99 = result.at("softmax.saturates.n4.p0.99");
  const Point& flat = jacobian.points.front();
  const Point best = highest(jacobian);
  result.findings.push_back(
      fmt::format("softmax([x, 0, 0, 0]) gives its first key 99 % from x = {:.2f} on; with 1024 keys that takes x = "
                  "{:.2f}. Saturation depends on both the scores and the number of keys.",
                  at_99, result.at("softmax.saturates.n1024.p0.99")));
  result.draw("sweep", "softmax([x, 0, 0, 0]) as x grows",
              fmt::format("The largest weight rises from 0.25 at x = 0 and passes 0.99 at x = {:.2f}. The norm of the "
                          "Jacobian is {:.3f} on the flat row, largest at x = {:.1f}, and {:.2g} at x = 10.",
                          at_99, flat.y, best.x, jacobian.points.back().y),
              Lines{{"x"}, {"value"}, {top, derivative, jacobian}, ""});
  result.draw("saturates", "The score at which one key takes nearly all",
              "Solved by bisection; all other scores are 0.", std::move(table));
}

// Rows printed in the documents, next to what softmax gives.
void check_printed_rows(Result& result) {
  struct Printed {
    const char *id, *document;
    std::vector<double> scores, printed;
  };
  const std::array<Printed, 7> rows{{
      {"peaked_001", "001", {8.5, -2.1, 7.9}, {0.99, 0.00, 0.01}},
      {"unscaled_001", "001", {9.2, -3.1, 8.8, -5.4, 1.2}, {0.599, 0.000, 0.401, 0.000, 0.000}},
      {"scaled_001", "001", {1.15, -0.39, 1.10, -0.68, 0.15}, {0.31, 0.07, 0.30, 0.05, 0.12}},
      {"wide_002", "002", {-20, 3, 25, -15}, {}},
      {"narrow_002", "002", {-2.5, 0.4, 3.1, -1.9}, {}},
      {"ten_003", "003", {10, 0, 0}, {0.9999, 0.00005, 0.00005}},
      {"flat_000", "000", {std::log(0.25), std::log(0.30), std::log(0.20), std::log(0.25)}, {0.25, 0.30, 0.20, 0.25}},
  }};
  Table table{{"document", "scores", "printed weights", "sum of printed", "softmax", "largest difference"}, {}};
  for (const Printed& row : rows) {
    const auto p = softmax(row.scores);
    const std::string key = fmt::format("softmax.row.{}", row.id);
    for (std::size_t i = 0; i < p.size(); ++i) result.exact(fmt::format("{}.p{}", key, i), p[i]);
    const Matrix jacobian = softmax_jacobian(row.scores);
    result.exact(key + ".jacobian", norm(jacobian.values));
    std::vector<Table::Cell> cells{std::string(row.document), row_text(row.scores), std::string("none"),
                                   std::string(""),           row_text(p),          std::string("")};
    if (!row.printed.empty()) {
      const double sum = mean(row.printed) * static_cast<double>(row.printed.size());
      cells[2] = row_text(row.printed);
      cells[3] = result.exact(key + ".printed_sum", sum);
      cells[5] = result.exact(key + ".difference", largest_difference(p, row.printed));
    }
    table.rows.push_back(std::move(cells));
  }
  // Scores that 001 and 002 print before and after division by √64.
  const auto division = [&](const char* id, std::vector<double> scores, const std::vector<double>& printed) {
    for (double& s : scores) s /= 8;
    result.exact(fmt::format("softmax.division.{}", id), largest_difference(scores, printed));
  };
  division("001", rows[1].scores, rows[2].scores);
  division("002", rows[3].scores, rows[4].scores);
  for (const std::size_t n : {2, 4, 8, 64}) {
    result.exact(fmt::format("softmax.eight.n{}", n), softmax(peak(8, n))[0]);
  }
  result.exact("softmax.eight.exp", std::exp(-8.0));
  result.draw("printed", "Rows printed in the documents", "Each row of scores, put through Keel's softmax.",
              std::move(table));
}

// The Jacobian p_i(δ_ij − p_j): the formula itself, the rows of 001, and its norm as scores spread.
void measure_jacobian(Work& work, Result& result) {
  const std::uint64_t seed = work.settings().seed;
  const std::size_t repeats = work.repeats(10, 50);
  std::vector<double> formula(repeats), difference(repeats);
  work.sweep(0.1, repeats, [&](std::size_t r) {
    Random random(seed, "softmax/jacobian", r);
    std::vector<double> scores(8);
    random.normal(scores, 2.0);
    const auto p = softmax(scores);
    const Matrix j = softmax_jacobian(scores);
    for (std::size_t b = 0; b < scores.size(); ++b) {
      const double h = 1e-5;
      auto up = scores, down = scores;
      up[b] += h;
      down[b] -= h;
      const auto p_up = softmax(up), p_down = softmax(down);
      for (std::size_t a = 0; a < scores.size(); ++a) {
        const double measured = j.at(static_cast<std::int64_t>(a), static_cast<std::int64_t>(b));
        formula[r] = std::max(formula[r], std::abs(measured - p[a] * ((a == b ? 1.0 : 0.0) - p[b])));
        difference[r] = std::max(difference[r], std::abs(measured - (p_up[a] - p_down[a]) / (2 * h)));
      }
    }
  });
  result.measure("softmax.jacobian.formula_error", formula);
  result.measure("softmax.jacobian.difference_error", difference);

  const std::vector<double> moderate = {std::log(0.3), std::log(0.3), std::log(0.2), std::log(0.2)};
  const Matrix healthy = softmax_jacobian(moderate), dead = softmax_jacobian(peak(1000, 4));
  for (std::int64_t i = 0; i < 4; ++i) result.exact(fmt::format("softmax.jacobian.moderate.{}", i), healthy.at(i, i));
  result.exact("softmax.jacobian.one_hot", norm(dead.values));
  const Matrix eight = softmax_jacobian(peak(8, 2));
  result.exact("softmax.jacobian.eight", std::abs(eight.at(0, 1)));
  const Matrix wide = softmax_jacobian(std::vector<double>{-20, 3, 25, -15});
  result.exact("softmax.jacobian.wide_002", std::max({wide.at(0, 0), wide.at(1, 1), wide.at(3, 3)}));

  struct Cell {
    std::int64_t keys;
    double sd;
    double cost() const { return static_cast<double>(keys); }
  };
  std::vector<Cell> cells;
  for (const std::int64_t n : {4, 16, 64, 256}) {
    for (int step = -6; step <= 10; ++step) cells.push_back({n, std::exp2(0.5 * step)});
  }
  constexpr std::int64_t kRows = 32;
  const auto norms = work.repeat(0.6, cells, repeats, [&](const Cell& cell, std::size_t r) {
    Random random(seed, fmt::format("softmax/spread/{}", cell.keys), r);
    const Matrix q(kRows, 1), k(cell.keys, 1), scores = normal_matrix(random, kRows, cell.keys, cell.sd);
    const Rows rows = measure({.q = q, .k = k, .weights = true, .bias = &scores});
    double sum = 0;
    for (std::int64_t i = 0; i < kRows; ++i) sum += jacobian_norm(rows.weights.row(i));
    return sum / kRows;
  });
  std::vector<Series> series;
  for (std::size_t i = 0; i < cells.size(); ++i) {
    if (i == 0 || cells[i].keys != cells[i - 1].keys) series.push_back({fmt::format("{} keys", cells[i].keys), {}});
    series.back().points.push_back(point(cells[i].sd, norms[i]));
  }
  const Point first = series[2].points.front(), top = highest(series[2]), few = highest(series[0]);
  result.exact("softmax.jacobian.best_sd.n64", top.x);
  result.findings.push_back(
      fmt::format("A flat row has a small Jacobian as well: with 64 keys its norm is {:.3f} for nearly equal scores, "
                  "largest ({:.3f}) when scores have a standard deviation of {:.1f}, and falls only beyond that.",
                  first.y, top.y, top.x));
  result.draw(
      "jacobian", "How much of a gradient the softmax lets through, as the scores spread",
      fmt::format("Norm of the softmax's Jacobian against the standard deviation of the scores. With 64 keys it rises "
                  "from {:.3f} to {:.3f} at a deviation of {:.1f} and then falls; with 4 keys it is largest at {:.3g}.",
                  first.y, top.y, top.x, few.x),
      Lines{{"standard deviation of the scores", true},
            {"mean norm of the Jacobian"},
            std::move(series),
            "one standard deviation over seeds"});
}

// Where the textbook exp(x)/Σexp(x) stops being a number, and what subtracting the largest score changes.
void measure_overflow(Work& work, Result& result) {
  const std::size_t repeats = work.repeats(10, 50);
  Table table{{"dtype", "naive fails from x =", "ln of the largest number", "naive and shifted differ by at most",
               "shifted: error at 10 x", "Keel: error at 10 x"},
              {}};
  const std::array<std::pair<DType, double>, 4> dtypes = {{{DType::f64, std::numeric_limits<double>::max()},
                                                           {DType::f32, std::numeric_limits<float>::max()},
                                                           {DType::f16, 65504.0},
                                                           {DType::bf16, to_float(BFloat16{0x7F7F})}}};
  for (const auto& [dtype, largest] : dtypes) {
    const std::string key = fmt::format("softmax.overflow.{}", name_of(dtype));
    const auto fails = [&, d = dtype](double x) {
      for (const double p : textbook_softmax(peak(x, 4), d, false)) {
        if (!std::isfinite(p)) return true;
      }
      return false;
    };
    const double from = threshold(0, 1000, fails);
    std::vector<double> apart(repeats);
    work.sweep(0.3 / dtypes.size(), repeats, [&, d = dtype](std::size_t r) {
      Random random(work.settings().seed, "softmax/overflow", r);
      std::vector<double> scores(64);
      random.normal(scores, 2.0);
      for (double& s : scores) s = std::min(s, 6.0);  // where the naive form is safe in every dtype
      apart[r] = largest_difference(textbook_softmax(scores, d, false), textbook_softmax(scores, d, true));
    });
    const auto far = peak(10 * from, 4), exact = peak(1, 1);
    const auto error = [&](const std::vector<double>& p) { return std::abs(p[0] - exact[0]) + p[1] + p[2] + p[3]; };
    const double shifted = error(textbook_softmax(far, dtype, true)), keel = error(keel_softmax(far, dtype));
    result.exact(key + ".from", from);
    result.exact(key + ".shifted_error", shifted);
    result.exact(key + ".keel_error", keel);
    table.rows.push_back(
        {std::string(name_of(dtype)), from, std::log(largest), result.measure(key + ".apart", apart), shifted, keel});
  }
  const auto from = [&](const char* dtype) { return result.at(fmt::format("softmax.overflow.{}.from", dtype)); };
  result.findings.push_back(
      fmt::format("Without subtracting the largest score, softmax overflows at a score of {:.1f} in f16, {:.1f} in f32 "
                  "and bf16, and {:.1f} in f64. Subtracting it removes the limit.",
                  from("f16"), from("f32"), from("f64")));
  result.draw("overflow", "Naive and shifted softmax",
              "Row [x, 0, 0, 0], every operation rounded to the dtype; “shifted” subtracts the largest score first; "
              "the difference is over random rows.",
              std::move(table));
}

class Softmax : public Experiment {
 public:
  std::string name() const override { return "softmax"; }
  std::string question() const override {
    return "Where does a softmax saturate or overflow, and how much gradient does it let through?";
  }
  Cost cost() const override { return {0.2, 1}; }

  Result run(Work& work) const override {
    Result result;
    result.settings = fmt::format("Rows of 2 to 1024 scores; random rows over {} seeds.", work.repeats(10, 50));
    sweep_one_score(result);
    measure_jacobian(work, result);
    measure_overflow(work, result);
    check_printed_rows(result);
    return result;
  }
};

}  // namespace
}  // namespace softmax_experiment

std::unique_ptr<Experiment> make_softmax() { return std::make_unique<softmax_experiment::Softmax>(); }

}  // namespace keel::lab
