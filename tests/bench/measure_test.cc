#include "bench/measure.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "bench/scenarios/scenarios.h"
#include "bench/summary.h"
#include "runtime/machine.h"

namespace keel::bench {
namespace {

using testing::ElementsAre;

TEST(Summary, MedianAndQuartiles) {
  const std::vector<double> odd = {5, 1, 3, 2, 4}, even = {4, 1, 2, 3}, one = {7};
  EXPECT_EQ(summary_of(odd).median, 3);
  EXPECT_EQ(summary_of(odd).lower, 2);
  EXPECT_EQ(summary_of(odd).upper, 4);
  EXPECT_EQ(summary_of(odd).least, 1);
  EXPECT_EQ(summary_of(odd).greatest, 5);
  EXPECT_EQ(summary_of(even).median, 2.5);
  EXPECT_EQ(summary_of(even).lower, 1.75);
  EXPECT_EQ(summary_of(one).median, 7);
  EXPECT_EQ(summary_of(one).upper, 7);
}

TEST(Yardsticks, KeepWhatTheyMeasureByKind) {
  const std::int64_t target = machine().target_bits.front();
  Yardsticks yardsticks(1e-3);
  for (const int threads : {1, 2, 2}) EXPECT_GT(yardsticks.fma(DType::f64, target, threads), 0);
  const auto& measured = yardsticks.measured();
  EXPECT_EQ(measured.size(), 2u);
  EXPECT_EQ(measured.at({Yardsticks::What::fma, DType::f64, target, 2}).size(), 2u);
}

TEST(Yardsticks, AMatrixUnitHasARateOfItsOwn) {
  if (!machine().bf16_unit) GTEST_SKIP() << "this CPU has no matrix unit that is faster than widening bf16";
  EXPECT_GT(Yardsticks(1e-3).unit(1), 0);
}

constexpr Procedure kShort{.repeats = 3, .sample_seconds = 1e-4, .yardstick_seconds = 1e-4};

Case tiny(std::int64_t n) { return {.q_heads = 1, .kv_heads = 1, .n_q = n, .n_k = n, .d = 16}; }

TEST(Measure, RowsAreVisitedInRounds) {
  std::vector<std::string> visits;
  const std::vector<Row> rows = {{.subject = tiny(8), .scenario = "a"}, {.subject = tiny(9), .scenario = "b"}};
  measure(rows, kShort, [&](const std::string& what, double share) {
    if (share > 0) visits.push_back(what.substr(0, 1));
  });
  EXPECT_THAT(visits, ElementsAre("a", "b", "a", "b", "a", "b"));
}

TEST(Measure, SharesAreOfTheYardsticksOfTheSameRepeat) {
  const Measurements m = measure({{.subject = tiny(32)}}, kShort, [](const auto&...) {});
  const Result& result = m.results.front();
  EXPECT_EQ(result.flops, 4.0 * 16 * 32 * 32);
  ASSERT_EQ(result.repeats.size(), 3u);
  double fastest = 0, highest = 0;
  for (const Repeat& r : result.repeats) {
    const double rate = result.flops / r.seconds;
    EXPECT_DOUBLE_EQ(r.value, rate / ((r.yardstick[0] + r.yardstick[1]) / 2));
    fastest = std::max(fastest, rate);
    highest = std::max({highest, r.yardstick[0], r.yardstick[1]});
  }
  EXPECT_DOUBLE_EQ(fastest_value(result), fastest / highest);
}

TEST(Measure, BaselinesAreMeasuredInTheSameRepeat) {
  const Row cost{.subject = tiny(48), .metric = Metric::cost, .baseline = tiny(8), .baseline_name = "short"};
  Row speedup = cost;
  speedup.metric = Metric::speedup;
  const Measurements m = measure({cost, speedup}, kShort, [](const auto&...) {});
  for (const Result& result : m.results) {
    for (const Repeat& r : result.repeats) {
      ASSERT_TRUE(r.baseline_seconds.has_value());
      const double baseline = ((*r.baseline_seconds)[0] + (*r.baseline_seconds)[1]) / 2;
      EXPECT_DOUBLE_EQ(r.value, result.row.metric == Metric::cost ? r.seconds / baseline - 1 : baseline / r.seconds);
    }
  }
}

TEST(Measure, MemoryIsAtLeastThePlansWorkspace) {
  const Measurements m = measure({{.subject = tiny(64), .metric = Metric::extra_bytes}}, kShort, [](const auto&...) {});
  const Result& result = m.results.front();
  ASSERT_EQ(result.repeats.size(), 1u);
  EXPECT_GT(result.workspace_bytes, 0);
  EXPECT_GE(result.repeats.front().value, static_cast<double>(result.workspace_bytes));
}

TEST(Measure, WhatTheMachineLacksIsSkipped) {
  Case many = tiny(8);
  many.threads = machine().threads + 1;
  Case foreign = tiny(8);
  foreign.target = 1;  // a bit that Highway gives to none
  for (const Case& c : {many, foreign}) {
    const Measurements m = measure({{.subject = c}}, kShort, [](const auto&...) {});
    EXPECT_NE(m.results.front().skipped, "");
    EXPECT_TRUE(m.results.front().repeats.empty());
  }
}

TEST(Measure, AMergeIsJudgedByWhatItReadsAndWrites) {
  Case c = tiny(40);
  c.merge = true;
  for (const std::int64_t target : {std::int64_t{0}, machine().target_bits.back()}) {
    c.target = target;
    const Row row{.subject = c, .metric = Metric::update_share};
    const Measurements m = measure({row}, {.repeats = 1, .yardstick_seconds = 1e-4}, [](const auto&...) {});
    const Result& result = m.results.front();
    EXPECT_EQ(result.bytes, 3.0 * 40 * 16 * 4);  // two parts read, one written
    ASSERT_EQ(result.repeats.size(), 1u);
    const Repeat& r = result.repeats.front();
    EXPECT_DOUBLE_EQ(r.value, result.bytes / r.seconds / ((r.yardstick[0] + r.yardstick[1]) / 2));
    const std::int64_t used = target != 0 ? target : machine().target_bits.front();
    EXPECT_EQ(m.yardsticks.measured().at({Yardsticks::What::update, DType::f32, used, 1}).size(),
              4u);  // and warming up
  }
}

TEST(Scenarios, HaveABaselineWhereTheyCompare) {
  for (const Scenario& scenario : scenarios()) {
    for (const bool quick : {false, true}) {
      const std::vector<Row> rows = scenario.rows(quick);
      EXPECT_FALSE(rows.empty()) << scenario.name;
      for (const Row& row : rows) {
        const bool compares = row.metric == Metric::rate || row.metric == Metric::speedup || row.metric == Metric::cost;
        EXPECT_EQ(row.baseline.has_value(), compares) << scenario.name;
        EXPECT_EQ(row.baseline_name.empty(), !compares) << scenario.name;
        EXPECT_EQ(row.subject.q_heads % row.subject.kv_heads, 0) << scenario.name;
      }
    }
  }
}

TEST(Calls, ForcedTargetsAndReportsRun) {
  for (const Reports reports :
       {Reports::nothing, Reports::usual, Reports::everything, Reports::key_sums, Reports::last_key_sums}) {
    for (const std::int64_t target : machine().target_bits) {
      Case c = tiny(20);
      c.mask = true;
      c.reports = reports;
      c.target = target;
      const Measurements m = measure({{.subject = c}}, kShort, [](const auto&...) {});
      EXPECT_EQ(m.results.front().target, target);
      EXPECT_EQ(m.results.front().repeats.size(), 3u);
    }
  }
}

}  // namespace
}  // namespace keel::bench
