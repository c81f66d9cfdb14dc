#include <fmt/format.h>

#include <array>
#include <cmath>
#include <limits>

#include "lab/experiments.h"
#include "lab/measure.h"
#include "lab/statistics.h"

namespace keel::lab {
namespace example_experiment {
namespace {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

Table matrix_table(const std::string& corner, const Matrix& m, const std::string& column_name) {
  Table table{{corner}, {}};
  for (std::int64_t j = 0; j < m.columns; ++j) table.columns.push_back(fmt::format("{} {}", column_name, j + 1));
  for (std::int64_t i = 0; i < m.rows; ++i) {
    std::vector<Table::Cell> row{fmt::format("token {}", i + 1)};
    for (std::int64_t j = 0; j < m.columns; ++j) row.emplace_back(m.at(i, j));
    table.rows.push_back(std::move(row));
  }
  return table;
}

// The exercise of 003: three tokens, d_k = 2, as done on paper; Keel's result next to it.
void three_tokens(Result& result) {
  const Matrix q(3, 2, {1, 0, 0, 1, 1, 1}), k(3, 2, {1, 0, 0, 1, 0.5, 0.5}), v = k;
  Matrix s(3, 3), scaled(3, 3), e(3, 3), p(3, 3), o(3, 2);
  for (std::int64_t i = 0; i < 3; ++i) {
    double sum = 0;
    for (std::int64_t j = 0; j < 3; ++j) {
      s.at(i, j) = dot(q.row(i), k.row(j));
      scaled.at(i, j) = s.at(i, j) / std::sqrt(2.0);
      e.at(i, j) = std::exp(scaled.at(i, j));
      sum += e.at(i, j);
    }
    for (std::int64_t j = 0; j < 3; ++j) {
      p.at(i, j) = e.at(i, j) / sum;
      for (std::int64_t c = 0; c < 2; ++c) o.at(i, c) += p.at(i, j) * v.at(j, c);
    }
  }
  Matrix out(3, 2);
  const Rows rows = measure({.q = q, .k = k, .weights = true});
  attention(q.input(), k.input(), v.input(), out.output());
  double apart = 0;
  for (std::size_t i = 0; i < p.values.size(); ++i)
    apart = std::max(apart, std::abs(p.values[i] - rows.weights.values[i]));
  for (std::size_t i = 0; i < o.values.size(); ++i) apart = std::max(apart, std::abs(o.values[i] - out.values[i]));
  result.exact("example.paper_error", apart);
  result.exact("example.score.orthogonal",
               measure({.q = Matrix(1, 2, {1, 0}), .k = Matrix(1, 2, {0, 1})}).max_logit[0]);
  double from_angle = 0;  // ‖q‖‖k‖cos θ, the angle taken from the directions
  for (std::int64_t i = 0; i < 3; ++i) {
    for (std::int64_t j = 0; j < 3; ++j) {
      const double angle = std::atan2(q.at(i, 1), q.at(i, 0)) - std::atan2(k.at(j, 1), k.at(j, 0));
      from_angle = std::max(from_angle, std::abs(s.at(i, j) - norm(q.row(i)) * norm(k.row(j)) * std::cos(angle)));
    }
  }
  result.exact("example.score.angle_error", from_angle);
  for (std::int64_t i = 0; i < 3; ++i) {
    for (std::int64_t j = 0; j < 3; ++j) result.exact(fmt::format("example.weight.{}.{}", i, j), rows.weights.at(i, j));
    for (std::int64_t c = 0; c < 2; ++c) result.exact(fmt::format("example.output.{}.{}", i, c), out.at(i, c));
  }
  result.findings.push_back(
      fmt::format("Token 1 gives itself {:.4f}, token 2 {:.4f} and token 3 {:.4f}. Token 3 has the same score for all "
                  "and so weights of {:.4f} each. Keel agrees with the sums done on paper to {:.0e}.",
                  rows.weights.at(0, 0), rows.weights.at(0, 1), rows.weights.at(0, 2), rows.weights.at(2, 0), apart));
  const auto add = [&](const char* id, const char* title, const char* text, Table table) {
    result.draw(id, title, text, std::move(table));
  };
  add("q", "Given: Q", "Three tokens, d_k = 2.", matrix_table("Q", q, "component"));
  add("k", "Given: K = V", "Keys and values are the same here.", matrix_table("K = V", k, "component"));
  add("scores", "1. Scores S = QKᵀ", "Token i's query with token j's key: multiply componentwise and add.",
      matrix_table("S", s, "key"));
  add("scaled", "2. Divide by √d_k = √2 = 1.4142", "Each score divided by the same number.",
      matrix_table("S / √2", scaled, "key"));
  add("exp", "3a. Exponentials", "e to the power of each scaled score.", matrix_table("exp", e, "key"));
  add("weights", "3b. Weights A: each row divided by its sum", "Each row adds up to 1.", matrix_table("A", p, "key"));
  add("output", "4. Output O = AV", "The values, averaged with each row's weights.",
      matrix_table("O", out, "component"));
}

// Weights under a causal mask; what it hides is left out.
Heatmap causal_picture(const Matrix& weights) {
  Heatmap picture{"query", "key", "weight", {}, {}, weights.values, 0, 1};
  for (std::int64_t i = 0; i < weights.rows; ++i) {
    picture.rows.push_back(fmt::format("token {}", i));
    picture.columns.push_back(fmt::format("{}", i));
    for (std::int64_t j = i + 1; j < weights.columns; ++j) {
      picture.values[static_cast<std::size_t>(i * weights.columns + j)] = kNone;
    }
  }
  return picture;
}

// 003's causal mask on four tokens, Q = K = V drawn at random, d_k = 64; and 004's −1e9 instead.
void causal(Work& work, Result& result) {
  constexpr std::int64_t kTokens = 4, kSize = 64;
  const std::size_t repeats = work.repeats(10, 100);
  struct Found {
    double above, row_sum, big_above, apart, blind;
    std::vector<double> weights;
  };
  const auto found = work.repeat(0.8, std::vector<int>(1), repeats, [&](int, std::size_t r) {
    Random random(work.settings().seed, "example/causal", r);
    const Matrix x = normal_matrix(random, kTokens, kSize);
    const Matrix p = measure({.q = x, .k = x, .weights = true, .causal = Causal::top_left}).weights;
    Matrix big(kTokens, kTokens);
    for (std::int64_t i = 0; i < kTokens; ++i) {
      for (std::int64_t j = i + 1; j < kTokens; ++j) big.at(i, j) = -1e9;
    }
    const Matrix filled = measure({.q = x, .k = x, .weights = true, .bias = &big}).weights;
    const Matrix all(kTokens, kTokens, std::vector<double>(kTokens * kTokens, -1e9));
    Found f{0, 0, 0, 0, 0, p.values};
    for (std::int64_t i = 0; i < kTokens; ++i) {
      double sum = 0;
      for (std::int64_t j = 0; j < kTokens; ++j) {
        sum += p.at(i, j);
        if (j > i) f.above = std::max(f.above, p.at(i, j));
        if (j > i) f.big_above = std::max(f.big_above, filled.at(i, j));
        f.apart = std::max(f.apart, std::abs(filled.at(i, j) - p.at(i, j)));
      }
      f.row_sum = std::max(f.row_sum, std::abs(sum - 1));
    }
    f.blind = mean(measure({.q = x, .k = x, .bias = &all}).max_weight);
    return f;
  });
  result.measure("example.causal.above", column(found[0], &Found::above));
  result.measure("example.causal.row_sum_error", column(found[0], &Found::row_sum));
  result.measure("example.causal.big_above", column(found[0], &Found::big_above));
  result.measure("example.causal.big_apart", column(found[0], &Found::apart));
  result.measure("example.causal.blind_max_weight", column(found[0], &Found::blind));

  std::vector<std::int64_t> visible(kTokens);
  const Matrix x(kTokens, 1);
  Matrix out(kTokens, 1);
  Options options;
  options.causal = Causal::top_left;
  Outputs outputs;
  outputs.visible = row_view(visible.data(), {1, 1, kTokens});
  attention(x.input(), x.input(), x.input(), out.output(), options, outputs);

  for (std::int64_t i = 0; i < kTokens; ++i) {
    result.exact(fmt::format("example.causal.visible.{}", i), static_cast<double>(visible[i]));
  }
  const double apart = result.at("example.causal.big_apart");
  result.findings.push_back(fmt::format(
      "Under the causal mask tokens 0 to 3 see {}, {}, {} and {} keys. Adding −1e9 instead gives {} weights, but a row "
      "with every key masked that way still attends (its first choice gets {:.2f}), whereas a mask gives 0.",
      visible[0], visible[1], visible[2], visible[3],
      apart == 0 ? "exactly the same" : fmt::format("the same (to {:.0e})", apart),
      result.at("example.causal.blind_max_weight")));
  result.draw("causal", "The causal mask on four tokens (Q = K = V, d_k = 64)",
              fmt::format("Lower triangle; cells above the diagonal are masked. Token 0 sees only itself (weight 1); "
                          "token 3 sees all four and gives itself {:.3f}: with Q = K each token is most like itself.",
                          found[0][0].weights.back()),
              causal_picture(Matrix(kTokens, kTokens, found[0][0].weights)));
  Random random(work.settings().seed, "example/causal/independent");
  const Matrix q = normal_matrix(random, 8, kSize), k = normal_matrix(random, 8, kSize);
  const Matrix p = measure({.q = q, .k = k, .weights = true, .causal = Causal::top_left}).weights;
  result.draw("causal-independent", "The same on eight tokens with Q and K drawn independently",
              fmt::format("Lower triangle; row i spreads its attention over i + 1 keys. The last row's weights run "
                          "from {:.3f} to {:.3f}.",
                          quantile(p.row(7), 0), quantile(p.row(7), 1)),
              causal_picture(p));
}

// 003's own test: shapes (2, 5, 64), (2, 7, 64), (2, 7, 32), in its dtype, f32. Rows of weights add up to 1.
void row_sums(Work& work, Result& result) {
  constexpr std::int64_t kBatch = 2, kQueries = 5, kKeys = 7, kSize = 64, kValue = 32;
  const auto normal = [](Random& random, std::size_t count) {
    std::vector<double> wide(count);
    random.normal(wide);
    return std::vector<float>(wide.begin(), wide.end());
  };
  const auto errors = work.repeat(0.2, std::vector<int>(1), work.repeats(10, 100), [&](int, std::size_t r) {
    Random random(work.settings().seed, "example/row_sums", r);
    const auto q = normal(random, kBatch * kQueries * kSize), k = normal(random, kBatch * kKeys * kSize);
    const auto v = normal(random, kBatch * kKeys * kValue);
    std::vector<float> out(kBatch * kQueries * kValue), weights(kBatch * kQueries * kKeys);
    Options options;
    options.threads = 1;
    Outputs outputs;
    outputs.weights = view(weights.data(), {kBatch, 1, kQueries, kKeys});
    attention(view(q.data(), {kBatch, 1, kQueries, kSize}), view(k.data(), {kBatch, 1, kKeys, kSize}),
              view(v.data(), {kBatch, 1, kKeys, kValue}), view(out.data(), {kBatch, 1, kQueries, kValue}), options,
              outputs);
    double worst = 0;
    for (std::size_t row = 0; row < kBatch * kQueries; ++row) {
      double sum = 0;
      for (std::size_t j = 0; j < kKeys; ++j) sum += double{weights[row * kKeys + j]};
      worst = std::max(worst, std::abs(sum - 1));
    }
    return worst;
  });
  result.measure("example.row_sum_error", errors[0]);
}

class Example : public Experiment {
 public:
  std::string name() const override { return "example"; }
  std::string question() const override {
    return "What does attention compute, step by step, on three tokens that fit on paper?";
  }
  Cost cost() const override { return {0.1, 0.3}; }

  Result run(Work& work) const override {
    Result result;
    result.settings =
        fmt::format("Three tokens of 003, d_k 2. Causal mask: four tokens, d_k 64, {} seeds.", work.repeats(10, 100));
    three_tokens(result);
    causal(work, result);
    row_sums(work, result);
    return result;
  }
};

}  // namespace
}  // namespace example_experiment

std::unique_ptr<Experiment> make_example() { return std::make_unique<example_experiment::Example>(); }

}  // namespace keel::lab
