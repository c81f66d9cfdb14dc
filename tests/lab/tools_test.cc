// What the experiments are made of: random numbers, statistics, theory, and the operator as an instrument.
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <random>

#include "lab/initialisation.h"
#include "lab/measure.h"
#include "lab/precision.h"
#include "lab/random.h"
#include "lab/statistics.h"
#include "lab/theory.h"
#include "lab/work.h"

namespace keel::lab {
namespace {

std::vector<double> normals(std::uint64_t seed, std::string_view stream, std::uint64_t repeat, std::size_t count) {
  std::vector<double> values(count);
  Random(seed, stream, repeat).normal(values);
  return values;
}

TEST(Random, IsAFunctionOfSeedStreamAndRepeat) {
  const auto values = normals(1, "a", 0, 100);
  EXPECT_EQ(values, normals(1, "a", 0, 100));
  EXPECT_NE(values, normals(2, "a", 0, 100));
  EXPECT_NE(values, normals(1, "b", 0, 100));
  EXPECT_NE(values, normals(1, "a", 1, 100));
}

TEST(Random, HasTheMomentsOfANormal) {
  constexpr std::size_t kCount = 200000;
  const auto values = normals(3, "moments", 0, kCount);
  double second = 0, third = 0, fourth = 0;
  for (const double x : values) {
    second += x * x / kCount;
    third += x * x * x / kCount;
    fourth += x * x * x * x / kCount;
  }
  const double error = 5 / std::sqrt(double{kCount});  // five standard errors, for a quantity of variance 1
  EXPECT_NEAR(mean(values), 0, error);
  EXPECT_NEAR(second, 1, error * std::sqrt(2));
  EXPECT_NEAR(third, 0, error * std::sqrt(15));
  EXPECT_NEAR(fourth, 3, error * std::sqrt(96));
}

TEST(Random, TwoStreamsAreNotCorrelated) {
  constexpr std::size_t kCount = 100000;
  const auto a = normals(3, "one", 0, kCount), b = normals(3, "one", 1, kCount);
  EXPECT_NEAR(dot(a, b) / kCount, 0, 5 / std::sqrt(double{kCount}));
}

TEST(Statistics, QuantilesSlopesAndShares) {
  const std::vector<double> values = {4, 1, 3, 2};
  EXPECT_DOUBLE_EQ(quantile(values, 0), 1);
  EXPECT_DOUBLE_EQ(quantile(values, 0.5), 2.5);
  EXPECT_DOUBLE_EQ(quantile(values, 1), 4);
  EXPECT_DOUBLE_EQ(standard_deviation(values), std::sqrt(5.0 / 3));
  EXPECT_EQ(standard_deviation(std::vector<double>{1}), 0);
  EXPECT_DOUBLE_EQ(slope(std::vector<double>{0, 1, 2}, std::vector<double>{1, 3, 5}), 2);
  const std::vector<double> edges = {1, 2, 3};
  EXPECT_EQ(shares(values, edges), (std::vector<double>{0.25, 0.5}));  // 3 belongs to the last bin, 4 to none
}

TEST(Work, ResultsKeepTheirPlaceOnAnyNumberOfThreads) {
  for (const int threads : {1, 2, 5}) {
    Work work({.full = false, .seed = 0, .repeats = 0, .threads = threads});
    const auto found =
        work.repeat(1.0, std::vector<int>{10, 20, 30}, 7, [](int cell, std::size_t r) { return cell + int(r); });
    ASSERT_EQ(found.size(), 3u);
    for (int c = 0; c < 3; ++c) {
      for (int r = 0; r < 7; ++r) EXPECT_EQ(found[c][r], 10 * (c + 1) + r);
    }
  }
}

TEST(Work, SaysHowFarItIsAndStopsWhenAsked) {
  struct Watcher : Observer {
    void progress(double share) override {
      EXPECT_GE(share, last);
      last = share;
    }
    bool stop() const override { return last >= 0.5; }
    double last = 0;
  };
  Watcher watcher;
  std::atomic<int> done = 0;
  Work work({.full = false, .seed = 0, .repeats = 0, .threads = 1}, watcher);
  EXPECT_THROW(work.sweep(1.0, 100, [&](std::size_t) { ++done; }), Stopped);
  EXPECT_EQ(done, 50);
}

TEST(Theory, ExpectedEntropyAgreesWithSampling) {
  std::mt19937_64 random(5);
  for (const auto& [n, sigma] : {std::pair{10, 1.0}, {64, 1.0}, {10, 4.0}, {32, 8.0}}) {
    std::normal_distribution<double> normal(0, sigma);
    std::vector<double> entropies;
    for (int row = 0; row < 4000; ++row) {
      std::vector<double> s(static_cast<std::size_t>(n));
      for (double& x : s) x = normal(random);
      const double top = *std::max_element(s.begin(), s.end());
      double z = 0, weighted = 0;
      for (const double x : s) {
        z += std::exp(x - top);
        weighted += std::exp(x - top) * (x - top);
      }
      entropies.push_back(std::log(z) - weighted / z);
    }
    EXPECT_NEAR(expected_entropy(n, sigma), mean(entropies), 5 * standard_deviation(entropies) / std::sqrt(4000.0));
  }
}

TEST(Theory, ExpectedEntropyHasItsLimits) {
  // Scores hardly apart: ln n − σ²/2·(1 − 1/n), to the order of σ².
  EXPECT_NEAR(expected_entropy(16, 0.01), std::log(16) - 0.5e-4 * 15 / 16, 1e-8);
  // Many keys: ln n − 1/2 + (e + 1)/(2n), by the delta method.
  EXPECT_NEAR(expected_entropy(4096, 1), std::log(4096) - 0.5 + (std::exp(1.0) + 1) / 8192, 1e-5);
}

TEST(Initialisation, VariancesAreThoseOfTheirAuthors) {
  const auto of = [](const std::string& id) -> const Initialisation& {
    for (const auto& start : initialisations()) {
      if (start.id == id) return start;
    }
    throw std::out_of_range(id);
  };
  constexpr double d = 768, d_k = 64;
  EXPECT_DOUBLE_EQ(of("unit").logit_variance(d, d_k), 64);
  EXPECT_DOUBLE_EQ(of("xavier_fused").activation_variance(d, d_k), 0.5);       // 768 · 2/(768 + 2304)
  EXPECT_DOUBLE_EQ(of("xavier_square").activation_variance(d, d_k), 1);        // 768 · 2/(768 + 768)
  EXPECT_DOUBLE_EQ(of("xavier_head").activation_variance(d, d_k), 24.0 / 13);  // 768 · 2/(768 + 64)
  EXPECT_DOUBLE_EQ(of("kaiming").logit_variance(d, d_k), 256);                 // 64 · 2²
  EXPECT_DOUBLE_EQ(of("lecun").logit_variance(d, d_k), 64);
  EXPECT_NEAR(of("gpt2").activation_variance(d, d_k), 0.3072, 1e-12);           // 768 · 0.02²
  EXPECT_NEAR(of("torch_linear").activation_variance(d, d_k), 1.0 / 3, 1e-12);  // U(±1/√768) has variance 1/(3·768)
}

TEST(Measure, SoftmaxAndItsJacobian) {
  const auto p = softmax(std::vector<double>{std::log(1.0), std::log(2.0), std::log(5.0)});
  EXPECT_NEAR(p[0], 0.125, 1e-15);
  EXPECT_NEAR(p[2], 0.625, 1e-15);
  const Matrix j = softmax_jacobian(std::vector<double>{std::log(1.0), std::log(2.0), std::log(5.0)});
  EXPECT_NEAR(j.at(0, 0), 0.125 * 0.875, 1e-15);
  EXPECT_NEAR(j.at(0, 2), -0.125 * 0.625, 1e-15);
  EXPECT_NEAR(j.at(2, 1), -0.625 * 0.25, 1e-15);
  EXPECT_NEAR(jacobian_norm(p), norm(j.values), 1e-15);
  // Even weights: √(n − 1)/n.
  EXPECT_NEAR(jacobian_norm(std::vector<double>(64, 1.0 / 64)), std::sqrt(63.0) / 64, 1e-15);
}

TEST(Measure, FirstComponentsAndSequencesAreThoseOfACopy) {
  Random random(1, "measure");
  const Matrix q = normal_matrix(random, 6, 8), k = normal_matrix(random, 6, 8);
  Matrix narrow_q(3, 5), narrow_k(3, 5);  // the second of two sequences, five components
  for (std::int64_t i = 0; i < 3; ++i) {
    for (std::int64_t c = 0; c < 5; ++c) {
      narrow_q.at(i, c) = q.at(3 + i, c);
      narrow_k.at(i, c) = k.at(3 + i, c);
    }
  }
  const Rows all = measure({.q = q, .k = k, .d_k = 5, .sequences = 2, .weights = true});
  const Rows copy = measure({.q = narrow_q, .k = narrow_k, .weights = true});
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(all.entropy[3 + i], copy.entropy[i]);
    EXPECT_EQ(all.max_logit[3 + i], copy.max_logit[i]);
    for (std::int64_t j = 0; j < 3; ++j) EXPECT_EQ(all.weights.at(3 + i, j), copy.weights.at(i, j));
  }
}

TEST(Measure, GradientsAgreeWithCentralDifferences) {
  Random random(2, "gradient");
  Matrix q = normal_matrix(random, 4, 3);
  const Matrix k = normal_matrix(random, 4, 3), v = normal_matrix(random, 4, 2), dout = normal_matrix(random, 4, 2);
  const auto loss = [&] {
    const Matrix p = measure({.q = q, .k = k, .sequences = 2, .weights = true}).weights;
    double sum = 0;
    for (std::int64_t i = 0; i < 4; ++i) {
      for (std::int64_t j = 0; j < 2; ++j) sum += p.at(i, j) * dot(v.row(i / 2 * 2 + j), dout.row(i));
    }
    return sum;
  };
  const Gradient g = gradient({.q = q, .k = k, .sequences = 2}, v, dout);
  for (std::size_t at = 0; at < q.values.size(); ++at) {
    const double value = q.values[at], h = 1e-5;
    q.values[at] = value + h;
    const double up = loss();
    q.values[at] = value - h;
    const double down = loss();
    q.values[at] = value;
    EXPECT_NEAR(g.dq.values[at], (up - down) / (2 * h), 1e-9);
  }
  // The gradient with respect to the scores: each row adds up to 0, since adding to all scores changes nothing.
  for (std::int64_t i = 0; i < 4; ++i) EXPECT_NEAR(g.ds.at(i, 0) + g.ds.at(i, 1), 0, 1e-15);
}

TEST(Precision, RoundsEveryOperationToTheDtype) {
  const std::vector<double> row = {12, 0};
  EXPECT_FALSE(std::isfinite(textbook_softmax(row, DType::f16, false)[0]));  // e^12 is over 65504
  EXPECT_TRUE(std::isfinite(textbook_softmax(row, DType::bf16, false)[0]));
  EXPECT_EQ(textbook_softmax(row, DType::f16, true)[0], 1);
  EXPECT_EQ(rounded(1.0 + 0x1p-9, DType::bf16), 1);
  EXPECT_NEAR(keel_softmax(row, DType::f32)[1], std::exp(-12.0) / (1 + std::exp(-12.0)), 1e-6 * std::exp(-12.0));
}

}  // namespace
}  // namespace keel::lab
