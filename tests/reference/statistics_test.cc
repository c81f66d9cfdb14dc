#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "reference/call.h"

// The statistics by their definitions, from scores computed here.
namespace keel::semantics {
namespace {

class Statistics : public Semantics {};

// scale·q·k of one row, for the keys that `sees` allows.
template <class Sees>
std::vector<double> scores_of(const Inputs& x, std::int64_t b, std::int64_t h, std::int64_t i, double scale,
                              Sees sees) {
  std::vector<double> scores;
  for (std::int64_t j = 0; j < x.k.shape[2]; ++j) {
    if (!sees(j)) continue;
    double dot = 0.0;
    for (std::int64_t d = 0; d < x.q.shape[3]; ++d) dot += x.q.at(b, h, i, d) * x.k.at(b, h, j, d);
    scores.push_back(scale * dot);
  }
  return scores;
}

TEST_P(Statistics, FollowTheirDefinitions) {
  const Inputs x = random_inputs(2, 2, 2, 7, 11, 4, 3);
  const Results r = attend(x, {.scale = 0.9, .causal = Causal::bottom_right});
  for (std::int64_t b = 0; b < 2; ++b) {
    for (std::int64_t h = 0; h < 2; ++h) {
      for (std::int64_t i = 0; i < 7; ++i) {
        const auto s = scores_of(x, b, h, i, 0.9, [&](std::int64_t j) { return j <= i + 4; });
        const auto n = static_cast<double>(s.size());
        double sum = 0.0, mean = 0.0, var = 0.0, entropy = 0.0;
        for (const double value : s) sum += std::exp(value), mean += value / n;
        for (const double value : s) var += (value - mean) * (value - mean) / n;
        for (const double value : s) entropy -= std::exp(value) / sum * std::log(std::exp(value) / sum);
        const double max = *std::max_element(s.begin(), s.end());
        EXPECT_NEAR(r.lse.at(b, h, i), std::log(sum), 1e-12);
        EXPECT_NEAR(r.max_logit.at(b, h, i), max, 1e-12);
        EXPECT_NEAR(r.entropy.at(b, h, i), entropy, 1e-12);
        EXPECT_NEAR(r.max_weight.at(b, h, i), std::exp(max) / sum, 1e-12);
        EXPECT_NEAR(r.logit_mean.at(b, h, i), mean, 1e-12);
        EXPECT_NEAR(r.logit_var.at(b, h, i), var, 1e-12);
        EXPECT_EQ(r.visible.at(b, h, i), n);
        EXPECT_EQ(r.logit_count.at(b, h, i), n);
      }
    }
  }
}

TEST_P(Statistics, ASinkCountsOnlyInLseEntropyAndMaxWeight) {
  const Inputs x = random_inputs(1, 1, 1, 3, 6, 4, 3);
  const std::vector<double> sink_values = {1.3};
  const Results plain = attend(x), r = attend(x, {.sinks = heads(sink_values)});
  for (std::int64_t i = 0; i < 3; ++i) {
    const auto s = scores_of(x, 0, 0, i, 0.5, [](auto) { return true; });
    double sum = std::exp(1.3);
    for (const double value : s) sum += std::exp(value);
    double entropy = -std::exp(1.3) / sum * (1.3 - std::log(sum));
    for (const double value : s) entropy -= std::exp(value) / sum * (value - std::log(sum));
    EXPECT_NEAR(r.lse.at(0, 0, i), std::log(sum), 1e-12);
    EXPECT_NEAR(r.entropy.at(0, 0, i), entropy, 1e-12);
    EXPECT_NEAR(r.max_weight.at(0, 0, i), std::exp(plain.max_logit.at(0, 0, i)) / sum, 1e-12);
  }
  expect_near(r.max_logit, plain.max_logit);
  expect_near(r.logit_mean, plain.logit_mean);
  expect_near(r.logit_var, plain.logit_var);
  expect_near(r.visible, plain.visible);
}

TEST_P(Statistics, ASinkThatIsNotFiniteLeavesTheLogitsAlone) {
  const Inputs x = random_inputs(1, 1, 1, 3, 6, 4, 3);
  const Results plain = attend(x);
  for (const double sink : {std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}) {
    const std::vector<double> values = {sink};
    const Results r = attend(x, {.sinks = heads(values)});
    expect_near(r.max_logit, plain.max_logit);
    expect_near(r.logit_mean, plain.logit_mean);
    expect_near(r.logit_var, plain.logit_var);
    expect_near(r.visible, plain.visible);
  }
}

TEST_P(Statistics, DropoutChangesNoStatistic) {
  const Inputs x = random_inputs(1, 2, 2, 5, 9, 4, 3);
  Results a = attend(x), b = attend(x, {.dropout = 0.5, .seed = 4});
  b.out = a.out;
  b.weights = a.weights;
  expect_same(b, a);
}

TEST_P(Statistics, EntropyOfEqualScoresIsTheLogOfTheirNumber) {
  Inputs x = random_inputs(1, 1, 1, 4, 13, 3, 2);
  x.q.values.assign(x.q.values.size(), 0.0);
  const Results r = attend(x);
  for (std::int64_t i = 0; i < 4; ++i) {
    EXPECT_NEAR(r.entropy.at(0, 0, i), std::log(13.0), 1e-12);
    EXPECT_NEAR(r.max_weight.at(0, 0, i), 1.0 / 13.0, 1e-12);
    EXPECT_EQ(r.logit_var.at(0, 0, i), 0.0);
  }
}

TEST_P(Statistics, EntropyDoesNotCancelAtLargeScores) {
  // Two scores of 50000 and a third 20 below: the entropy is that of [0, 0, −20].
  Inputs x = random_inputs(1, 1, 1, 1, 3, 1, 1);
  x.q.values = {1.0};
  x.k.values = {50000.0, 50000.0, 49980.0};
  const double z = 2.0 + std::exp(-20.0), p = 1.0 / z, r = std::exp(-20.0) / z;
  // 2e-11: a kernel may keep scores in units of log 2, which rounds 50000 by 7e-12
  EXPECT_NEAR(attend(x, {.scale = 1.0}).entropy.values[0], -2 * p * std::log(p) - r * std::log(r), 2e-11);
}

// Left padding as a bias, by a number: all is as under a boolean mask, but that the keys stay visible.
TEST_P(Statistics, AFiniteBiasThatMasksLeavesThoseOfAMask) {
  constexpr std::int64_t n_k = 1400, padding = 1100;
  const Inputs x = random_inputs(1, 2, 1, 3, n_k, 4, 3);
  const Mask mask({1, 1, 1, n_k}, [](auto, auto, auto, std::int64_t j) { return j >= padding; });
  const std::vector<double> sink_values = {1.0, -2.0};
  for (const double low : {-1e30, -1e38, std::numeric_limits<double>::lowest()}) {
    SCOPED_TRACE(low);
    Dense bias({1, 1, 1, n_k});
    std::fill_n(bias.values.begin(), padding, low);
    for (const bool sinks : {false, true}) {
      Options by_bias{.bias = view(bias)}, by_mask{.mask = mask.view()};
      if (sinks) by_bias.sinks = by_mask.sinks = heads(sink_values);
      Results got = attend(x, by_bias);
      const Results want = attend(x, by_mask);
      for (double& visible : got.visible.values) visible -= padding;
      expect_same(got, want);
    }
  }
}

TEST_P(Statistics, ScoresAtOrBelowMinus2To64AreLeftOutOfTheMoments) {
  Inputs x = random_inputs(1, 1, 1, 1, 6, 1, 1);
  x.q.values = {1.0};
  x.k.values = {3.0, -0x1p64, 1.0, -1e30, -0x1p65, -std::numeric_limits<double>::max() / 2};
  const Results r = attend(x, {.scale = 1.0});
  EXPECT_NEAR(r.logit_mean.values[0], 2.0, 1e-12);
  EXPECT_NEAR(r.logit_var.values[0], 1.0, 1e-12);
  EXPECT_EQ(r.visible.values[0], 6.0);
  EXPECT_EQ(r.logit_count.values[0], 2.0);
  x.k.values = {0.0, -0x1p63, 0.0, -0x1p63, 0.0, -0x1p63};
  const Results above = attend(x, {.scale = 1.0});
  EXPECT_NEAR(above.logit_mean.values[0], -0x1p62, 1e-12 * 0x1p62);
  EXPECT_NEAR(above.logit_var.values[0], 0x1p124, 1e-12 * 0x1p124);
  EXPECT_EQ(above.logit_count.values[0], 6.0);
  x.k.values = {-1e30, -1e30, NAN, -1e30, -1e30, -1e30};  // a NaN is not left out
  EXPECT_EQ(attend(x, {.scale = 1.0}).logit_count.values[0], 1.0);
}

TEST_P(Statistics, MomentsOfARowWithNoOtherScoreAreZero) {
  const Inputs x = random_inputs(1, 1, 1, 2, 5, 4, 3);
  for (const double low : {-1e30, std::numeric_limits<double>::lowest()}) {
    Dense bias({1, 1, 1, 1});
    bias.values = {low};
    const Results r = attend(x, {.bias = view(bias)});
    for (std::size_t i = 0; i < 2; ++i) {
      EXPECT_EQ(r.logit_mean.values[i], 0.0);
      EXPECT_EQ(r.logit_var.values[i], 0.0);
      EXPECT_EQ(r.visible.values[i], 5.0);
      EXPECT_EQ(r.logit_count.values[i], 0.0);
      EXPECT_NEAR(r.entropy.values[i], std::log(5.0), 1e-12);
    }
  }
}

TEST_P(Statistics, TheVarianceOfFiniteScoresOverflowsToInfinity) {
  Inputs x = random_inputs(1, 1, 1, 1, 700, 1, 1);
  x.q.values = {1.0};
  x.k.values.assign(700, 0.5e200);
  x.k.values[650] = 1e200;
  const Results r = attend(x, {.scale = 1.0});
  EXPECT_NEAR(r.logit_mean.values[0] / 1e200, 701.0 / 1400.0, 1e-12);
  EXPECT_EQ(r.logit_var.values[0], INFINITY);
}

TEST_P(Statistics, WeightsTimesValuesAreTheOutput) {
  const Inputs x = random_inputs(2, 4, 2, 5, 9, 4, 3);
  const Results r = attend(x, {.causal = Causal::bottom_right, .dropout = 0.3, .seed = 11});
  for (std::int64_t b = 0; b < 2; ++b) {
    for (std::int64_t h = 0; h < 4; ++h) {
      for (std::int64_t i = 0; i < 5; ++i) {
        for (std::int64_t c = 0; c < 3; ++c) {
          double o = 0.0;
          for (std::int64_t j = 0; j < 9; ++j) o += r.weights.at(b, h, i, j) * x.v.at(b, h / 2, j, c);
          EXPECT_NEAR(r.out.at(b, h, i, c), o, 1e-12);
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Both, Statistics, kBoth, name_of_run);

// Per head: made from the rows by their definitions.
TEST(HeadStatistics, FollowTheirDefinitions) {
  const Inputs x = random_inputs(2, 2, 1, 6, 9, 4, 3);
  const Mask mask({2, 1, 6, 9}, [](std::int64_t b, auto, std::int64_t i, std::int64_t j) {
    if (b == 0 && i == 3) return false;   // a fully masked row counts nowhere
    if (b == 1 && i == 2) return j == 5;  // a row without a choice has no normalised entropy
    return true;
  });
  Options options{.scale = 2.0, .mask = mask.view()};
  const Results r = attend(oracle, x, options);
  Dense out(r.out.shape);
  std::vector<keel::HeadStatistics> got(4);
  attention(view(x.q), view(x.k), view(x.v), out.tensor(), options, {.heads = got, .saturation_threshold = 0.8});
  for (std::int64_t b = 0; b < 2; ++b) {
    for (std::int64_t h = 0; h < 2; ++h) {
      double max = -INFINITY, sum = 0.0, min = INFINITY, normalised = 0.0, saturated = 0.0, count = 0.0, choosing = 0.0;
      for (std::int64_t i = 0; i < 6; ++i) {
        const double n = r.visible.at(b, h, i), entropy = r.entropy.at(b, h, i);
        if (n == 0) continue;
        ++count;
        max = std::max(max, r.max_logit.at(b, h, i));
        min = std::min(min, entropy);
        sum += entropy;
        saturated += r.max_weight.at(b, h, i) > 0.8 ? 1 : 0;
        if (n < 2) continue;
        ++choosing;
        normalised += entropy / std::log(n);
      }
      const keel::HeadStatistics& head = got[static_cast<std::size_t>(b * 2 + h)];
      EXPECT_EQ(head.rows, static_cast<std::int64_t>(count));
      EXPECT_NEAR(head.max_logit, max, 1e-12);
      EXPECT_NEAR(head.mean_entropy, sum / count, 1e-12);
      EXPECT_NEAR(head.min_entropy, min, 1e-12);
      EXPECT_NEAR(head.normalised_entropy, normalised / choosing, 1e-12);
      EXPECT_NEAR(head.saturated, saturated / count, 1e-12);
    }
  }
}

TEST(HeadStatistics, OfAHeadThatSeesNothing) {
  const Inputs x = random_inputs(1, 1, 1, 3, 0, 4, 2);
  Dense out({1, 1, 3, 2});
  std::vector<keel::HeadStatistics> got(1, {.max_logit = 5, .mean_entropy = 5, .min_entropy = 5, .rows = 5});
  attention(view(x.q), view(x.k), view(x.v), out.tensor(), {}, {.heads = got});
  EXPECT_EQ(got[0].max_logit, -INFINITY);
  EXPECT_EQ(got[0].mean_entropy, 0.0);
  EXPECT_EQ(got[0].min_entropy, 0.0);
  EXPECT_EQ(got[0].normalised_entropy, 0.0);
  EXPECT_EQ(got[0].saturated, 0.0);
  EXPECT_EQ(got[0].rows, 0);
}

TEST(HeadStatistics, KeepNanOfOneRow) {
  for (std::int64_t row = 0; row < 3; ++row) {
    Inputs x = random_inputs(1, 1, 1, 3, 4, 4, 2);
    x.q.at(0, 0, row, 0) = NAN;
    Dense out({1, 1, 3, 2});
    std::vector<keel::HeadStatistics> got(1);
    attention(view(x.q), view(x.k), view(x.v), out.tensor(), {}, {.heads = got});
    EXPECT_TRUE(std::isnan(got[0].max_logit));
    EXPECT_TRUE(std::isnan(got[0].mean_entropy));
    EXPECT_TRUE(std::isnan(got[0].min_entropy));
    EXPECT_TRUE(std::isnan(got[0].normalised_entropy));
    EXPECT_TRUE(std::isnan(got[0].saturated));
    EXPECT_EQ(got[0].rows, 3);
  }
}

}  // namespace
}  // namespace keel::semantics
