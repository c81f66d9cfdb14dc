// What the experiments measured, against closed forms. Tolerances are five standard errors of the sample.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <numbers>

#include "lab/initialisation.h"
#include "run.h"

namespace keel::test {
namespace {

constexpr double kErrors = 5;

double value(const std::string& key) {
  const auto found = measurements().find(key);
  EXPECT_NE(found, measurements().end()) << key;
  return found == measurements().end() ? std::numeric_limits<double>::quiet_NaN() : found->second.value;
}

// Standard error of the mean square of n × n products q_i·k_j over kRepeats repeats, relative to its mean d. A product
// has Var((q·k)²) = 2d² + 6d, two with a vector in common covary by 2d.
double relative_error(double d, double n) {
  return std::sqrt(((2 * d * d + 6 * d) / (n * n) + 4 * d / n) / kRepeats) / d;
}

TEST(VarianceNumbers, LawIsDk) {
  for (double d = 1; d <= 1024; d *= 2) {
    const double n = std::clamp(4096 / d, 64.0, 512.0), error = kErrors * relative_error(d, n);
    EXPECT_NEAR(value(fmt::format("variance.unit.d{}.var", d)) / d, 1, error) << d;
    EXPECT_NEAR(value(fmt::format("variance.unit.d{}.scaled_var", d)), 1, error) << d;
    EXPECT_NEAR(value(fmt::format("variance.unit.d{}.mean", d)), 0, kErrors * std::sqrt(d / (n * n) / kRepeats)) << d;
  }
}

TEST(VarianceNumbers, ExceptionsHaveTheirOwnConstants) {
  // Per component: mean, variance and fourth cumulant of q_i·k_i.
  struct Case {
    const char* id;
    double mean, var, fourth;
  };
  for (const Case& c : {Case{"independent", 0, 1, 6}, Case{"shifted", 0.25, 1.5, 12},
                        Case{"correlated", 0.5, 1.25, 15.375}, Case{"same", 1, 2, 48}}) {
    for (const double d : {1, 4, 16, 64, 256}) {
      const double pairs = 512 * kRepeats, var = d * c.var;
      EXPECT_NEAR(value(fmt::format("variance.{}.d{}.mean", c.id, d)), d * c.mean, kErrors * std::sqrt(var / pairs))
          << c.id;
      EXPECT_NEAR(value(fmt::format("variance.{}.d{}.var", c.id, d)), var,
                  kErrors * std::sqrt((d * c.fourth + 2 * var * var) / pairs))
          << c.id << d;
    }
  }
}

TEST(VarianceNumbers, InitialisationsFollowTheirWeights) {
  for (const auto& start : lab::initialisations()) {
    for (const double d : {4, 16, 64, 256}) {
      const std::string key = fmt::format("variance.init.{}.d{}", start.id, d);
      // To the error of the tokens comes that of the weights: ‖W_Q·W_Kᵀ‖² has a relative variance of 4/(768·d_k).
      const double error = std::hypot(relative_error(d, 64), std::sqrt(4 / (768 * d) / kRepeats));
      const double expected = start.logit_variance(lab::kModelSize, d);
      EXPECT_NEAR(value(key + ".var") / expected, 1, kErrors * error) << key;
      EXPECT_NEAR(value(key + ".scaled_var") / (expected / d), 1, kErrors * error) << key;
      // The mean square of a component over 64 tokens of 768: relative variance 2·(1/768 + 1/64).
      EXPECT_NEAR(value(key + ".activation") / start.activation_variance(lab::kModelSize, d), 1,
                  kErrors * std::sqrt(2 * (1.0 / 768 + 1.0 / 64) / d / kRepeats) + 0.01)
          << key;
    }
  }
}

TEST(VarianceNumbers, ExtremesAreThoseOfANormal) {
  // The largest of 320,000: between the quantiles 1e-9 and 1e-4 from the end, a tenth more for the longer tail of a
  // product's sum.
  EXPECT_GT(value("variance.range.raw"), 8 * 3.7);
  EXPECT_LT(value("variance.range.raw"), 8 * 6.0 * 1.1);
  EXPECT_NEAR(value("variance.range.raw") / value("variance.range.scaled"), 8, 1e-9);
}

TEST(SoftmaxNumbers, ThresholdsAreLogarithms) {
  for (const int n : {2, 4, 10, 64, 1024}) {
    for (const double p : {0.9, 0.99, 0.999}) {
      EXPECT_NEAR(value(fmt::format("softmax.saturates.n{}.p{}", n, p)), std::log((n - 1) * p / (1 - p)), 1e-7);
    }
  }
}

TEST(SoftmaxNumbers, NaiveFailsWhereTheExponentialOverflows) {
  EXPECT_NEAR(value("softmax.overflow.f64.from"), std::log(std::numeric_limits<double>::max()), 1e-5);
  EXPECT_NEAR(value("softmax.overflow.f32.from"), std::log(std::numeric_limits<float>::max()), 1e-4);
  EXPECT_NEAR(value("softmax.overflow.f16.from"), std::log(65520.0), 0.004);  // half a step of f16 near 11
  EXPECT_NEAR(value("softmax.overflow.bf16.from"), std::log(3.39e38), 0.25);  // half a step of bf16 near 88
  for (const char* dtype : {"f64", "f32", "f16", "bf16"}) {
    EXPECT_EQ(value(fmt::format("softmax.overflow.{}.keel_error", dtype)), 0) << dtype;
  }
}

TEST(SoftmaxNumbers, PrintedRows) {
  // e^s / Σ e^s, computed here.
  const auto expect_row = [](const std::string& id, const std::vector<double>& scores) {
    double sum = 0;
    for (const double s : scores) sum += std::exp(s);
    for (std::size_t i = 0; i < scores.size(); ++i) {
      EXPECT_NEAR(value(fmt::format("softmax.row.{}.p{}", id, i)), std::exp(scores[i]) / sum, 1e-14) << id << i;
    }
  };
  expect_row("peaked_001", {8.5, -2.1, 7.9});
  expect_row("unscaled_001", {9.2, -3.1, 8.8, -5.4, 1.2});
  expect_row("scaled_001", {1.15, -0.39, 1.10, -0.68, 0.15});
  expect_row("wide_002", {-20, 3, 25, -15});
  expect_row("narrow_002", {-2.5, 0.4, 3.1, -1.9});
  expect_row("ten_003", {10, 0, 0});
  EXPECT_NEAR(value("softmax.row.scaled_001.printed_sum"), 0.85, 1e-12);
  EXPECT_NEAR(value("softmax.jacobian.moderate.0"), 0.21, 1e-12);
  EXPECT_NEAR(value("softmax.jacobian.moderate.3"), 0.16, 1e-12);
}

TEST(EntropyNumbers, ScaledEntropyIsThePlateau) {
  // Over rows the entropy of 10 keys has a standard deviation near 0.2, that of 64 keys near 0.14; 64 rows a repeat.
  for (const auto& [n, sd] : {std::pair{10, 0.2}, {64, 0.14}}) {
    const double error = kErrors * sd / std::sqrt(64.0 * kRepeats);
    for (const int d : {256, 512, 1024}) {
      EXPECT_NEAR(value(fmt::format("entropy.scaled.d{}.n{}", d, n)), value(fmt::format("entropy.plateau.n{}", n)),
                  error);
    }
  }
}

TEST(EntropyNumbers, UnscaledEntropyFallsWithEachDoubling) {
  for (const int n : {10, 64}) {
    double last = std::log(n);
    for (int d = 1; d <= 1024; d *= 2) {
      const double entropy = value(fmt::format("entropy.raw.d{}.n{}", d, n));
      EXPECT_LT(entropy, last) << d;
      last = entropy;
    }
  }
  EXPECT_EQ(value("entropy.raw.d1.n64"), value("entropy.scaled.d1.n64"));  // √1
}

// E[max of n standard normals], by quadrature.
double expected_maximum(int n) {
  double sum = 0;
  for (double x = -9; x <= 9; x += 0.001) {
    const double below = 0.5 * std::erfc(-x / std::numbers::sqrt2);
    sum += 0.001 * x * n * std::exp(-0.5 * x * x) / std::sqrt(2 * std::numbers::pi) * std::pow(below, n - 1);
  }
  return sum;
}

TEST(SaturationNumbers, LargestLogitIsTheMaximumOfNormals) {
  // Given q, the scores are N(0, |q|²): the mean is E|q|·E[max], with E|q| = 7.969 for 64 components. A row's largest
  // score deviates by at most 8; the 64 rows of a repeat share keys, in 64/n sequences.
  for (const int n : {4, 16, 64, 256, 1024}) {
    const double error = kErrors * 8 * 0.7 / std::sqrt(64.0 * kRepeats);
    EXPECT_NEAR(value(fmt::format("saturation.max_logit.d64.n{}", n)), 7.969 * expected_maximum(n), error) << n;
  }
}

TEST(SaturationNumbers, WeightsLieBetweenEvenAndOneHot) {
  for (const int n : {4, 16, 64, 256, 1024}) {
    for (int d = 1; d <= 1024; d *= 2) {
      for (const char* arm : {"raw", "scaled"}) {
        const std::string key = fmt::format("saturation.{}.d{}.n{}", arm, d, n);
        EXPECT_GE(value(key + ".min"), 1.0 / n);
        EXPECT_GE(value(key + ".median"), value(key + ".min"));
        EXPECT_LE(value(key + ".mean"), 1);
        EXPECT_GE(value(key + ".share"), 0);
      }
    }
    EXPECT_EQ(value(fmt::format("saturation.raw.d1.n{}.mean", n)),
              value(fmt::format("saturation.scaled.d1.n{}.mean", n)));
  }
}

TEST(SaturationNumbers, TwoKeysAreAsFarApartAsTwoNormals) {
  // E|s_i − s_j| = |q|·2/√π, unscaled less scaled.
  for (const int d : {16, 64, 256, 1024}) {
    const double expected = (std::sqrt(d) - 1) * 2 / std::sqrt(std::numbers::pi);
    EXPECT_NEAR(value(fmt::format("saturation.log_sharper.d{}", d)) / expected, 1, 0.15) << d;
  }
}

TEST(GradientNumbers, RatiosAreThoseOfTheNorms) {
  // d_k·scale² is what the factor alone does to dQ: with dS alike it is √d_k.
  for (const int d : {4, 16, 64, 256}) {
    const std::string cell = fmt::format("lecun.d{}.n64", d);
    const double factor = value("gradient.ratio." + cell + ".dq") / value("gradient.ratio." + cell + ".ds");
    EXPECT_NEAR(factor / std::sqrt(d), 1, 0.15) << d;
    EXPECT_GT(value("gradient.scaled." + cell + ".dw_v"), 0);
  }
}

TEST(LengthNumbers, LogarithmAndSquareRootAgreeAtTheReference) {
  EXPECT_NEAR(value("length.log.n64.max_weight"), value("length.scaled.n64.max_weight"), 1e-12);
  // ln n − 1/2 for many keys: the standard deviation of a row's entropy is below 0.05 there.
  EXPECT_NEAR(value("length.scaled.n65536.relative") * std::log(65536), std::log(65536) - 0.5, 0.25);
}

TEST(AblationNumbers, ScoresBeginWithTheVarianceOfTheirScale) {
  // Arms of one d_k begin with the same weights on the same data: the scale alone sets them apart.
  for (const double d : {4, 16, 64}) {
    const auto variance = [&](const char* arm) {
      return value(fmt::format("ablation.{}.d{}.start.logit_var", arm, d));
    };
    EXPECT_NEAR(variance("raw") / variance("scaled"), d, 1e-3 * d);
    EXPECT_NEAR(variance("model") / variance("scaled"), d / 32, 1e-3 * d / 32);
    EXPECT_EQ(variance("learned"), variance("scaled"));
    // dV is free of the scale but for the weights; dQ is not: both are there and finite.
    EXPECT_GT(value(fmt::format("ablation.raw.d{}.start.dw_q", d)), 0);
    // q and k of unit variance after the norm: E[s²] is about 1, less what the keys of a sequence share.
    EXPECT_NEAR(variance("scaled"), 1, 0.7);
  }
}

TEST(TemperatureNumbers, ScoresBeginWithTheVarianceOfTheirTemperature) {
  const double unit = value("temperature.unit.start.logit_var");
  EXPECT_NEAR(value("temperature.half.start.logit_var") / unit, 4, 1e-4);
  EXPECT_NEAR(value("temperature.double.start.logit_var") / unit, 0.25, 1e-5);
  EXPECT_NEAR(value("temperature.learned.start.logit_var") / unit, 1, 1e-6);
  EXPECT_NEAR(value("temperature.query.start.logit_var") / unit, 1, 1e-6);
}

TEST(ScoresNumbers, MemoryIsThatOfTheTensors) {
  // f32: dot holds the outputs, n·d; general the keys again as well; additive both projections and n² scores.
  for (const auto& [n, d] : {std::pair{256.0, 64.0}, {1024, 64}, {256, 256}}) {
    const auto bytes = [&](const char* id) { return value(fmt::format("scores.{}.d{}.n{}.bytes", id, d, n)); };
    EXPECT_DOUBLE_EQ(bytes("dot"), 4 * d / n);
    EXPECT_DOUBLE_EQ(bytes("scaled"), 4 * d / n);
    EXPECT_DOUBLE_EQ(bytes("general"), 8 * d / n);
    EXPECT_NEAR(bytes("additive"), 4 + 8 * d / n, 1e-3);
  }
}

TEST(ScoresNumbers, ChainsGrowByTheSameForEveryToken) {
  for (const char* what : {"depth", "path"}) {
    const auto gru = [&](int n) { return value(fmt::format("scores.{}.gru.n{}", what, n)); };
    EXPECT_EQ(gru(32) - gru(16), 2 * (gru(16) - gru(8)));
    EXPECT_EQ(gru(256) - gru(128), 16 * (gru(16) - gru(8)));
    for (const char* id : {"additive", "dot", "general", "scaled"}) {
      EXPECT_EQ(value(fmt::format("scores.{}.{}.n8", what, id)), value(fmt::format("scores.{}.{}.n256", what, id)));
    }
  }
  EXPECT_EQ(value("scores.shapes_003.products"), 2);
}

TEST(ScoresNumbers, AdditiveScoresTakeLonger) {
  for (const int d : {16, 64, 256}) EXPECT_GT(value(fmt::format("scores.additive_to_dot.d{}.n256", d)), 2) << d;
}

TEST(ExampleNumbers, PaperAndKeelAgree) {
  EXPECT_LE(value("example.paper_error"), 1e-15);
  const double a = std::exp(std::sqrt(0.5)), b = std::exp(std::sqrt(0.125));
  EXPECT_NEAR(value("example.weight.0.0"), a / (a + 1 + b), 1e-15);
  EXPECT_NEAR(value("example.weight.2.1"), 1.0 / 3, 1e-15);
  EXPECT_NEAR(value("example.output.2.0"), 0.5, 1e-15);
  EXPECT_EQ(value("example.causal.above"), 0);
}

TEST(Determinism, ThreadsDoNotChangeADigit) {
  for (const auto& record : everything()) {
    const std::string name = record.experiment->name();
    if (name == "variance" || name == "gradient" || name == "length") continue;  // they take long
    lab::Settings settings = record.settings;
    settings.threads = 1;
    EXPECT_EQ(to_json(run(name, settings)).dump(), to_json(record).dump()) << name;
  }
}

TEST(Determinism, AnotherSeedGivesOtherNumbers) {
  const auto other = run("entropy", {.full = false, .seed = 8, .repeats = kRepeats, .threads = 0});
  EXPECT_NE(other.result.at("entropy.raw.d64.n64"), value("entropy.raw.d64.n64"));
}

TEST(Keys, BeginWithTheNameOfTheExperiment) {
  for (const auto& record : everything()) {
    EXPECT_FALSE(record.result.findings.empty());
    EXPECT_FALSE(record.result.figures.empty());
    for (const lab::Findings* part : record.result.parts()) {
      for (const auto& [key, m] : part->measurements) {
        EXPECT_TRUE(key.starts_with(record.experiment->name() + ".")) << key;
        EXPECT_TRUE(std::isfinite(m.value)) << key;
      }
    }
  }
}

}  // namespace
}  // namespace keel::test
