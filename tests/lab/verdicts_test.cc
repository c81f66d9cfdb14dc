// Verdicts on planted evidence: for each claim, measurements on both sides of its line, and within the noise.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>

#include "lab/claims/criteria.h"
#include "lab/timing.h"

namespace keel::lab {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

std::string verdict(const std::string& id, const Measurements& planted) {
  for (const Claim& claim : claims()) {
    if (claim.id != id) continue;
    Evidence evidence(planted);
    return claim.judge(evidence).verdict.text();
  }
  throw std::out_of_range(id);
}

// A mean over 16 seeds whose noise, four standard errors, is `noise`.
Measurement about(double value, double noise = 0) { return {value, noise, 16}; }

TEST(Verdicts, NoiseIsFourStandardErrorsAndMoreForFewRepeats) {
  EXPECT_DOUBLE_EQ(criteria::noise({1, 0.4, 16}), 0.4);
  EXPECT_DOUBLE_EQ(criteria::noise({1, 0.4, 4}), 5.841 * 0.2);
  EXPECT_EQ(criteria::noise({1, 0, 1}), 0);
}

TEST(Verdicts, EvidenceWithinItsNoiseOfTheLineIsUndecided) {
  using criteria::Truth;
  EXPECT_EQ(criteria::at_least(about(0.95, 0.04), 0.9), Truth::yes);
  EXPECT_EQ(criteria::at_least(about(0.92, 0.04), 0.9), Truth::undecided);
  EXPECT_EQ(criteria::at_least(about(0.88, 0.04), 0.9), Truth::undecided);
  EXPECT_EQ(criteria::at_least(about(0.85, 0.04), 0.9), Truth::no);
  EXPECT_EQ(criteria::at_least(about(0.9), 0.9), Truth::yes);  // exact
  EXPECT_EQ(criteria::more(about(2, 0.3), about(1, 0.4)), Truth::yes);
  EXPECT_EQ(criteria::more(about(1.4, 0.3), about(1, 0.4)), Truth::undecided);
  EXPECT_EQ(criteria::more(about(1), about(1)), Truth::no);
  EXPECT_EQ(criteria::agrees(about(103, 1), 100, 0.05), Truth::yes);
  EXPECT_EQ(criteria::agrees(about(104.5, 1), 100, 0.05), Truth::undecided);
  EXPECT_EQ(criteria::agrees(about(107, 1), 100, 0.05), Truth::no);
}

TEST(Verdicts, AnUndecidedCaseLeavesTheClaimOpenUnlessOthersShowBoth) {
  using criteria::Truth;
  const auto of = [](Truth a, Truth b, Truth c) {
    return criteria::judge({{"4", "x", a}, {"16", "y", b}, {"64", "z", c}}, {Measurement{}}, criteria::kSizeIs);
  };
  EXPECT_EQ(of(Truth::yes, Truth::undecided, Truth::yes).verdict.text(), "undecided: within the noise for d_k = 16");
  EXPECT_EQ(of(Truth::no, Truth::no, Truth::undecided).verdict.text(), "undecided: within the noise for d_k = 64");
  EXPECT_EQ(of(Truth::undecided, Truth::undecided, Truth::undecided).verdict.text(), "undecided");
  EXPECT_EQ(of(Truth::yes, Truth::undecided, Truth::no).verdict.text(), "holds if d_k = 4 (d_k = 16 undecided)");
  EXPECT_EQ(of(Truth::yes, Truth::undecided, Truth::no).cases[1].ruling, Ruling::undecided);
}

// A chain of n + 2 operations is linear: what counts is how it goes on, not what it begins with.
TEST(Verdicts, LinearIsByTheAsymptote) {
  const auto chain = [](double (*y)(double)) {
    std::vector<Point> points;
    for (double n = 8; n <= 256; n *= 2) points.push_back({n, y(n), y(n), y(n)});
    return order(points);
  };
  EXPECT_DOUBLE_EQ(chain([](double n) { return n + 2; }), 1);
  EXPECT_DOUBLE_EQ(chain([](double n) { return 100 + n * n; }), 2);
  EXPECT_EQ(chain([](double) { return 5.0; }), 0);
  for (const char* id : {"003-path-rnn", "003-steps-rnn"}) {
    const std::string what = id == std::string("003-path-rnn") ? "path" : "depth";
    Measurements m = {{"scores." + what + ".gru.n8", about(10)}, {"scores." + what + ".gru.n256", about(258)}};
    m["scores." + what + ".gru.order"] = {1, 0, 1};
    EXPECT_EQ(verdict(id, m), "holds");
    m["scores." + what + ".gru.order"] = {1.3, 0, 1};
    EXPECT_EQ(verdict(id, m), "does not hold");
  }
}

TEST(Verdicts, OneRuleForLinearInTimeAndInOperations) {
  for (const auto& [id, key] :
       {std::pair{"003-linear-additive", "scores.additive.order.d"}, {"003-linear-dot", "scores.dot.order.d"}}) {
    EXPECT_EQ(verdict(id, {{key, about(0.8, 0.04)}}), "holds") << id;
    EXPECT_EQ(verdict(id, {{key, about(0.7, 0.04)}}), "does not hold") << id;
    EXPECT_EQ(verdict(id, {{key, about(0.8, 0.1)}}), "undecided") << id;
  }
}

TEST(Verdicts, SmallGradientsAreJudgedByKeysByTheMedianAndByTheMeanRow) {
  Measurements m;
  const auto plant = [&](const char* of, double ratio, double noise) {
    for (const int n : {4, 16, 64}) {
      for (const int d : {64, 256, 1024}) {
        m[fmt::format("gradient.{}.scaled.lecun.d{}.n{}", of, d, n)] = about(1);
        m[fmt::format("gradient.{}.raw.lecun.d{}.n{}", of, d, n)] = about(ratio, noise);
      }
    }
  };
  plant("jacobian", 0.3, 0.01);
  plant("jacobian_median", 0.0013, 0.0005);
  EXPECT_EQ(verdict("003-small-gradients", m),
            "holds if one looks at the median row of 4 keys, the median row of 16 keys or the median row of 64 keys");
  plant("jacobian", 0.0013, 0.0005);
  EXPECT_EQ(verdict("003-small-gradients", m), "holds");
  plant("jacobian", 0.3, 0.01);
  plant("jacobian_median", 0.3, 0.01);
  EXPECT_EQ(verdict("003-small-gradients", m), "does not hold");
  plant("jacobian_median", 0.009, 0.005);
  EXPECT_THAT(verdict("003-small-gradients", m), StartsWith("undecided"));
}

// 0.78 is not near 1, and a mean near 1 is not enough: the rows decide, as for every claim of one-hot rows.
TEST(Verdicts, ImmediatelyIsJudgedAsOneHotIs) {
  Measurements m;
  const auto plant = [&](double share, double noise, double mean) {
    for (const int d : {4, 16, 64}) {
      m[fmt::format("ablation.raw.d{}.start.saturated", d)] = about(share, noise);
      m[fmt::format("ablation.raw.d{}.start.max_weight", d)] = about(mean);
    }
  };
  plant(0.3, 0.02, 0.78);
  EXPECT_EQ(verdict("000-immediately", m), "does not hold");
  plant(0.95, 0.02, 0.99);
  EXPECT_EQ(verdict("000-immediately", m), "holds");
  plant(0.91, 0.02, 0.99);
  EXPECT_EQ(verdict("000-immediately", m), "undecided");
}

TEST(Verdicts, ADivisionThatSavesTimeCostsNothing) {
  const auto of = [](Measurement at_256) {  // unscaled weights can be denormal there, which slows some CPUs down
    return verdict("001-negligible", {{"scores.scaled_to_dot.d16.n256", about(1, 0.01)},
                                      {"scores.scaled_to_dot.d64.n256", about(1, 0.01)},
                                      {"scores.scaled_to_dot.d256.n256", at_256}});
  };
  EXPECT_EQ(of(about(0.5, 0.01)), "holds");
  EXPECT_EQ(of(about(1.1, 0.01)), "holds");
  EXPECT_EQ(of(about(1.4, 0.01)), "holds if d = 16 or 64");
  EXPECT_THAT(of(about(1.25, 0.1)), HasSubstr("undecided"));
}

TEST(Verdicts, StopsIsJudgedOnASaturatedBlock) {
  const auto of = [](double reached, Measurement accuracy, Measurement saturated) {
    return verdict("000-stops", {{"ablation.saturated.accuracy", accuracy},
                                 {"ablation.saturated.start.saturated", saturated},
                                 {"ablation.saturated.reached", about(reached)}});
  };
  EXPECT_EQ(of(0, about(0.065, 0.005), about(0.95)), "holds");
  EXPECT_EQ(of(1, about(0.9, 0.05), about(0.95)), "does not hold");
  EXPECT_EQ(of(0, about(0.12, 0.01), about(0.95)), "holds if stopping means that no run converges");
  EXPECT_THAT(of(0, about(0.08, 0.01), about(0.95)), StartsWith("undecided"));
  EXPECT_EQ(of(0, about(0.065, 0.005), about(0.4)), "undecided: the block does not begin saturated");
}

TEST(Verdicts, TrainedTemperaturesAreUndecidedWithinTheNoise) {
  const auto of = [](const char* id, const char* arm, Measurement entropy) {
    return verdict(id, {{fmt::format("temperature.{}.end.entropy", arm), entropy},
                        {"temperature.unit.end.entropy", about(0.25, 0.06)}});
  };
  EXPECT_EQ(of("001-trained-cold", "half", about(0.1, 0.06)), "holds");
  EXPECT_EQ(of("001-trained-cold", "half", about(0.21, 0.06)), "undecided");
  EXPECT_EQ(of("001-trained-cold", "half", about(0.4, 0.06)), "does not hold");
  EXPECT_EQ(of("001-trained-hot", "double", about(0.4, 0.06)), "holds");
  EXPECT_EQ(of("001-trained-hot", "double", about(0.28, 0.06)), "undecided");
  EXPECT_EQ(of("001-trained-hot", "double", about(0.1, 0.06)), "does not hold");
}

// Both tasks count: an easy one with a tuned learning rate, and translation, of which half the gain must be left.
TEST(Verdicts, WhetherAttentionWorksUnscaledTakesTheTranslationToo) {
  Measurements m = {{"translate.none.bleu", about(30, 2)}};
  const auto plant = [&](double reached, double dot, double noise) {
    for (const int d : {4, 16, 64}) m[fmt::format("ablation.raw.d{}.reached", d)] = about(reached);
    for (const int d : {16, 64, 256}) {
      m[fmt::format("translate.scaled-{}.bleu", d)] = about(90, 2);
      m[fmt::format("translate.dot-{}.bleu", d)] = about(dot, noise);
    }
  };
  for (const char* id : {"001-works", "000-essential"}) {
    plant(0, 35, 5);
    EXPECT_EQ(verdict(id, m), "holds") << id;
    plant(1, 85, 5);
    EXPECT_EQ(verdict(id, m), "does not hold") << id;
    plant(1, 62, 5);  // half the gain is 60
    EXPECT_THAT(verdict(id, m), StartsWith("undecided")) << id;
    plant(1, 35, 5);
    EXPECT_THAT(verdict(id, m), StartsWith("holds if the task is translation at d_k = ")) << id;
  }
}

TEST(Verdicts, TheDeviationAtFiveHundredAndTwelve) {
  EXPECT_EQ(verdict("001-deviation-512", {{"variance.unit.d512.sd", about(22.6, 0.1)}}), "holds");
  EXPECT_EQ(verdict("001-deviation-512", {{"variance.unit.d512.sd", about(25, 0.1)}}), "does not hold");
  EXPECT_EQ(verdict("001-deviation-512", {{"variance.unit.d512.sd", about(23.5, 0.5)}}), "undecided");
}

TEST(Verdicts, WhatNoMeasurementReachesIsUndecidedAndSaysWhy) {
  EXPECT_EQ(verdict("001-universal", {}), "undecided: out of reach of a measurement");
}

TEST(Verdicts, CriticalWhereIsBeyondTheNoise) {
  const auto of = [](double lost_at_16, double lost_at_256, double noise) {
    return verdict("001-critical-where", {{"translate.scaled-16.bleu", about(90)},
                                          {"translate.dot-16.bleu", about(90 - lost_at_16, noise)},
                                          {"translate.scaled-64.bleu", about(90)},
                                          {"translate.dot-64.bleu", about(70, noise)},
                                          {"translate.scaled-256.bleu", about(90)},
                                          {"translate.dot-256.bleu", about(90 - lost_at_256, noise)}});
  };
  EXPECT_EQ(of(10, 50, 5), "holds");
  EXPECT_EQ(of(50, 30, 5), "does not hold");
  EXPECT_EQ(of(45, 50, 5), "undecided");
}

}  // namespace
}  // namespace keel::lab
