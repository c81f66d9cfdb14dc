#include <cmath>
#include <initializer_list>

#include "reference/call.h"

// The numbers that the five documents print, computed by the library and, independently, in closed form. Where a
// printed number is wrong the test says so in its name and shows the right one.
namespace keel::semantics {
namespace {

class Documents : public Semantics {
 protected:
  // softmax of a vector: one query 1, keys of size 1 that are the scores, scale 1.
  std::vector<double> softmax(const std::vector<double>& scores) const {
    const auto n = std::ssize(scores);
    Inputs x{Dense({1, 1, 1, 1}), Dense({1, 1, n, 1}), Dense({1, 1, n, 1})};
    x.q.values = {1.0};
    x.k.values = scores;
    x.v.values.assign(scores.size(), 1.0);
    return attend(x, {.scale = 1.0}).weights.values;
  }

  // exp(s_i) / Σ exp(s_j), plainly
  static std::vector<double> plain_softmax(const std::vector<double>& scores) {
    double sum = 0.0;
    for (const double s : scores) sum += std::exp(s);
    std::vector<double> p;
    for (const double s : scores) p.push_back(std::exp(s) / sum);
    return p;
  }

  std::vector<double> checked_softmax(const std::vector<double>& scores) const {
    const std::vector<double> got = softmax(scores), want = plain_softmax(scores);
    for (std::size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got[i], want[i], 1e-12);
    return got;
  }

  static void expect_printed(const std::vector<double>& got, std::initializer_list<double> printed, double unit) {
    std::size_t i = 0;
    for (const double p : printed) EXPECT_NEAR(got[i++], p, unit / 2 * (1 + 1e-9));
  }
};

TEST_P(Documents, Seed003ThreeTokensOfHeadSizeTwo) {
  Inputs x{Dense({1, 1, 3, 2}), Dense({1, 1, 3, 2}), Dense({1, 1, 3, 2})};
  x.q.values = {1, 0, 0, 1, 1, 1};
  x.k.values = {1, 0, 0, 1, 0.5, 0.5};
  x.v.values = {1, 0, 0, 1, 0.5, 0.5};
  const Results r = attend(x);
  // Scores over √2: rows (1, 0, ½), (0, 1, ½), (1, 1, 1).
  const double a = std::exp(1.0 / std::sqrt(2.0)), c = std::exp(0.5 / std::sqrt(2.0)), z = a + 1.0 + c;
  Dense weights({1, 1, 3, 3}), out({1, 1, 3, 2});
  weights.values = {a / z, 1 / z, c / z, 1 / z, a / z, c / z, 1.0 / 3, 1.0 / 3, 1.0 / 3};
  out.values = {(a + c / 2) / z, (1 + c / 2) / z, (1 + c / 2) / z, (a + c / 2) / z, 0.5, 0.5};
  expect_near(r.weights, weights);
  expect_near(r.out, out);
  EXPECT_NEAR(r.lse.at(0, 0, 0), std::log(z), 1e-12);
  EXPECT_NEAR(r.lse.at(0, 0, 2), 1.0 / std::sqrt(2.0) + std::log(3.0), 1e-12);
  EXPECT_NEAR(r.entropy.at(0, 0, 2), std::log(3.0), 1e-12);
}

TEST_P(Documents, Seed003CausalMaskOfFourTokens) {
  Inputs x = random_inputs(1, 1, 1, 4, 4, 64, 64);
  x.k = x.v = x.q;
  const Results r = attend(x, {.causal = Causal::top_left});
  for (std::int64_t i = 0; i < 4; ++i) {
    double sum = 0.0;
    for (std::int64_t j = 0; j < 4; ++j) {
      sum += r.weights.at(0, 0, i, j);
      EXPECT_EQ(r.weights.at(0, 0, i, j) > 0.0, j <= i);
    }
    EXPECT_NEAR(sum, 1.0, 1e-12);
    EXPECT_EQ(r.visible.at(0, 0, i), static_cast<double>(i + 1));
  }
}

TEST_P(Documents, Seed003WeightsOfFiveQueriesAndSevenKeysSumToOne) {
  const Results r = attend(random_inputs(2, 1, 1, 5, 7, 64, 32));
  for (std::int64_t b = 0; b < 2; ++b) {
    for (std::int64_t i = 0; i < 5; ++i) {
      double sum = 0.0;
      for (std::int64_t j = 0; j < 7; ++j) sum += r.weights.at(b, 0, i, j);
      EXPECT_NEAR(sum, 1.0, 1e-12);
    }
  }
}

TEST_P(Documents, Seed003SoftmaxOfTenZeroZero) {
  const std::vector<double> p = checked_softmax({10, 0, 0});
  EXPECT_NEAR(p[0], 1.0 / (1.0 + 2.0 * std::exp(-10.0)), 1e-12);
  expect_printed(p, {0.9999}, 1e-4);
  EXPECT_NEAR(p[1], 0.00005, 0.000005);
  EXPECT_NEAR(p[2], 0.00005, 0.000005);
}

TEST_P(Documents, Seed001UnscaledSoftmaxOfFiveScores) {
  expect_printed(checked_softmax({9.2, -3.1, 8.8, -5.4, 1.2}), {0.599, 0.000, 0.401, 0.000, 0.000}, 1e-3);
}

TEST_P(Documents, Seed001ScaledSoftmaxIsPrintedWrong) {
  const std::vector<double> p = checked_softmax({1.15, -0.39, 1.10, -0.68, 0.15});
  expect_printed(p, {0.37, 0.08, 0.35, 0.06, 0.14}, 1e-2);
  const double printed[] = {0.31, 0.07, 0.30, 0.05, 0.12};  // sums to 0.85
  for (std::size_t i = 0; i < 5; ++i) EXPECT_GT(p[i] - printed[i], 0.005) << "the printed value would be right";
}

TEST_P(Documents, Seed001SaturatedWeightsArePrintedWrongWhateverFollows) {
  // Printed: scores [8.5, -2.1, 7.9, …] → weights [0.99, 0.00, 0.01, …]. The ratio of two weights depends on their
  // scores alone: e^−0.6 = 0.55, not 0.01.
  const std::vector<double> p = checked_softmax({8.5, -2.1, 7.9});
  EXPECT_NEAR(p[2] / p[0], std::exp(-0.6), 1e-12);
  expect_printed(p, {0.646, 0.000, 0.354}, 1e-3);
  const std::vector<double> more = checked_softmax({8.5, -2.1, 7.9, 1.0, -6.0, 3.0});
  EXPECT_NEAR(more[2] / more[0], std::exp(-0.6), 1e-12);
}

TEST_P(Documents, Seed002LargeScoresCollapse) {
  const std::vector<double> p = checked_softmax({-20, 3, 25, -15});
  EXPECT_NEAR(1.0 - p[2], std::exp(-22.0), 1e-12);
  const std::vector<double> scaled = checked_softmax({-20 / 8.0, 3 / 8.0, 25 / 8.0, -15 / 8.0});
  expect_printed({-20 / 8.0, 3 / 8.0, 25 / 8.0, -15 / 8.0}, {-2.5, 0.4, 3.1, -1.9}, 0.1);
  EXPECT_LT(scaled[2], 0.95);
}

TEST_P(Documents, Seed000SaturatedRowHoldsForOneRivalAndNotForSixtyThree) {
  // Printed: "for one large logit z_max and d_k − 1 smaller ones … exp(−8) ≈ 3e-4 — the row is [0.9997, ε, …]".
  EXPECT_NEAR(std::exp(-8.0), 3e-4, 0.5e-4);
  EXPECT_NEAR(checked_softmax({8, 0})[0], 0.9997, 0.5e-4);
  std::vector<double> scores(64, 0.0);
  scores[0] = 8.0;
  EXPECT_NEAR(checked_softmax(scores)[0], 1.0 / (1.0 + 63.0 * std::exp(-8.0)), 1e-12);
  EXPECT_NEAR(checked_softmax(scores)[0], 0.979, 0.5e-3);
}

INSTANTIATE_TEST_SUITE_P(Both, Documents, kBoth, name_of_run);

TEST(DocumentGradients, Seed001SoftmaxDerivativesOfThreeThreeTwoTwo) {
  // ∂p_i/∂s_i = p_i(1 − p_i): v is the identity, dout picks component i of the output, which is p_i.
  const std::vector<double> p = {0.3, 0.3, 0.2, 0.2}, printed = {0.21, 0.21, 0.16, 0.16};
  Inputs x{Dense({1, 1, 1, 1}), Dense({1, 1, 4, 1}), Dense({1, 1, 4, 4})};
  Dense bias({1, 1, 1, 4}), dbias({1, 1, 1, 4});
  for (std::int64_t j = 0; j < 4; ++j) {
    bias.at(0, 0, 0, j) = std::log(p[static_cast<std::size_t>(j)]);
    x.v.at(0, 0, j, j) = 1.0;
  }
  const Options options{.bias = view(bias)};
  const Results r = attend(oracle, x, options);
  for (std::int64_t i = 0; i < 4; ++i) {
    Dense dout({1, 1, 1, 4});
    dout.at(0, 0, 0, i) = 1.0;
    attention_backward(
        {.q = view(x.q), .k = view(x.k), .v = view(x.v), .out = view(r.out), .lse = rows(r.lse), .dout = view(dout)},
        {.dbias = dbias.tensor()}, options);
    for (std::int64_t j = 0; j < 4; ++j) {
      const double pi = p[static_cast<std::size_t>(i)], pj = p[static_cast<std::size_t>(j)];
      EXPECT_NEAR(dbias.at(0, 0, 0, j), pi * ((i == j ? 1.0 : 0.0) - pj), 1e-12);
    }
    EXPECT_NEAR(dbias.at(0, 0, 0, i), printed[static_cast<std::size_t>(i)], 1e-12);
  }
}

}  // namespace
}  // namespace keel::semantics
