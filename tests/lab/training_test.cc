// What trains: the lookup task and its model, chains of operations, and the breaks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "keel/nn/nn.h"
#include "lab/breaks/breaks.h"
#include "lab/chains.h"
#include "lab/recall.h"
#include "lab/statistics.h"
#include "lab/timing.h"

namespace keel::lab {
namespace {

using testing::Each;
using testing::ElementsAre;

TEST(Recall, IsLearnedByAttention) {
  const Trained run = train_recall({.d_k = 16, .lr = 3e-2, .steps = 200, .every = 20, .seed = 1});
  EXPECT_NEAR(run.snapshots.front().accuracy, 1.0 / 16, 0.08);
  EXPECT_GT(run.last().accuracy, 0.95);
  EXPECT_LT(run.last().loss, recall_chance() / 4);
  EXPECT_TRUE(run.reached(recall_chance() / 2));
  EXPECT_GT(run.found, 0.5);  // and it is the answer that is looked at
  EXPECT_LT(run.found_before, 0.25);
  for (std::int64_t i = 0; i < run.weights.rows; ++i) EXPECT_NEAR(mean(run.weights.row(i)) * 24, 1, 1e-5);
}

TEST(Recall, HasTheSameBitsOnAnyNumberOfThreads) {
  const RecallSettings settings{.d_k = 64, .steps = 5, .every = 5, .seed = 3};
  nn::set_threads(2);
  const Trained two = train_recall(settings);
  const OneThreadEach one_thread_each;
  const Trained one = train_recall(settings);
  EXPECT_EQ(one.last().loss, two.last().loss);
  EXPECT_EQ(one.last().dw_q, two.last().dw_q);
  EXPECT_EQ(one.weights.values, two.weights.values);
}

TEST(Recall, StepsAndWhereTheCurveGoesFlat) {
  Trained run;
  for (const auto& [step, loss] : {std::pair{0.0, 4.0}, {10.0, 3.0}, {20.0, 1.0}, {30.0, 0.1}, {40.0, 0.0}}) {
    Snapshot s;
    s.step = step;
    s.loss = loss;
    run.snapshots.push_back(s);
  }
  EXPECT_DOUBLE_EQ(run.steps_to(4), 0);
  EXPECT_DOUBLE_EQ(run.steps_to(2), 15);
  EXPECT_DOUBLE_EQ(run.steps_to(-1), 40);
  EXPECT_TRUE(run.reached(0));
  EXPECT_FALSE(run.reached(-1));
  EXPECT_DOUBLE_EQ(run.settled(), 30);  // within 0.2 of the end
}

TEST(Chains, AreThoseOfTheExpression) {
  nn::Tensor x = nn::Tensor::full({2, 2}, 1.0), y = nn::Tensor::full({2, 2}, 2.0);
  x.require_grad();
  y.require_grad();
  const nn::Tensor z = nn::matmul(nn::matmul(x, y) + x, y) + x;
  EXPECT_EQ(depth_of(z), 4);  // matmul, add, matmul, add
  EXPECT_EQ(path_of(x, z), 1);
  EXPECT_EQ(path_of(y, z), 2);
  EXPECT_EQ(count_of("matmul", z), 2);
  EXPECT_TRUE(std::isinf(path_of(nn::Tensor::full({1}, 1.0).require_grad(), z)));
}

TEST(Timing, TheMedianOfRoundsIsNotMovedByOne) {
  Findings times;
  EXPECT_EQ(robust(times, "x", std::vector<double>{1, 2, 3, 4, 1000}), 3);
  EXPECT_NEAR(times.measurements.at("x").spread, 2 / 1.349, 1e-12);
  int calls = 0;
  EXPECT_GT(time_of([&] { ++calls; }), 0);
  EXPECT_GT(calls, 100);  // a short call is made often
}

TEST(Statistics, ConfidenceIsStudents) {
  EXPECT_NEAR(confidence(std::vector<double>{1, 2, 3}), 4.303 / std::sqrt(3.0), 1e-12);
  EXPECT_EQ(confidence(std::vector<double>{1}), 0);
  std::vector<double> many;  // 21 values, t = 2.086
  for (int i = 0; i < 21; ++i) many.push_back(i);
  EXPECT_NEAR(confidence(many), 2.086 * standard_deviation(many) / std::sqrt(21.0), 0.002 * standard_deviation(many));
}

TEST(Breaks, SayWhatChangesAndAskOfEachObservation) {
  std::set<std::string> names;
  for (const Break& b : breaks()) {
    SCOPED_TRACE(b.name);
    EXPECT_TRUE(names.insert(b.name).second);
    EXPECT_EQ(find_break(b.name), &b);
    EXPECT_NE(b.before, b.after);
    EXPECT_GE(b.hints.size(), 2u);
    std::set<std::string> ids;
    for (const Question& q : b.questions) EXPECT_TRUE(ids.insert(q.id).second) << q.id;
    for (const std::string* text : {&b.scene, &b.summary, &b.suspect, &b.cause, &b.fix}) EXPECT_FALSE(text->empty());
  }
  EXPECT_EQ(names, (std::set<std::string>{"no-scale", "sqrt-d-model", "mask-before-scale-in-f16",
                                          "causal-off-by-alignment", "softmax-over-queries"}));
  EXPECT_EQ(find_break("nothing"), nullptr);
}

TEST(Breaks, AChangeIsMoreThanChance) {
  EXPECT_EQ((Observed{{1, 1, 1}, {2, 2, 2}}.change()), Change::more);
  EXPECT_EQ((Observed{{2, 2, 2}, {1, 1, 1}}.change()), Change::less);
  EXPECT_EQ((Observed{{100, 100}, {104, 104}}.change()), Change::same);      // 4 %
  EXPECT_EQ((Observed{{1, 1, 1, 1}, {1, 3, 1, 3}}.change()), Change::same);  // 1 ± 1.15: below two standard errors
}

std::vector<Observed> observed(const char* name) {
  Work work({.full = false, .seed = 5, .repeats = 0, .threads = 0, .brief = true});
  const Break& which = *find_break(name);
  return compare(which.run(work, Version::healthy), which.run(work, Version::broken));
}

TEST(Breaks, MaskBeforeScaleLosesTheRowsThatSeeNothing) {
  const auto found = observed("mask-before-scale-in-f16");
  ASSERT_EQ(found.size(), 4u);
  for (const Observed& o : found) EXPECT_THAT(o.healthy, Each(0.0));
  EXPECT_THAT(found[0].broken, Each(3.0));  // the three of padding
  EXPECT_THAT(found[1].broken, Each(1.0));  // NaN in every column of dV
  EXPECT_THAT(found[2].broken, Each(0.0));
  EXPECT_THAT(found[3].broken, Each(0.125));  // even over eight keys
}

TEST(Breaks, CausalAlignmentHidesTheNewestKeys) {
  const auto found = observed("causal-off-by-alignment");
  ASSERT_EQ(found.size(), 4u);
  EXPECT_THAT(found[0].healthy, Each(16.0));
  EXPECT_THAT(found[0].broken, Each(4.0));
  EXPECT_THAT(found[1].healthy, Each(13.0));
  EXPECT_THAT(found[1].broken, Each(1.0));
  EXPECT_THAT(found[2].healthy, Each(testing::Lt(1e-12)));
  EXPECT_EQ(found[2].change(), Change::more);
  EXPECT_THAT(found[3].broken, Each(0.0));
}

TEST(Breaks, SoftmaxOverQueriesLeaksTheFuture) {
  const auto found = observed("softmax-over-queries");
  ASSERT_EQ(found.size(), 4u);
  EXPECT_THAT(found[0].healthy, Each(testing::DoubleNear(1, 1e-12)));
  EXPECT_THAT(found[1].broken, Each(testing::Gt(1.0)));  // its own key has all of its weight there
  EXPECT_THAT(found[2].broken, Each(0.0));
  EXPECT_THAT(found[3].healthy, Each(0.0));
  EXPECT_THAT(found[3].broken, Each(testing::Gt(0.0)));
  EXPECT_EQ(found[3].change(), Change::more);
}

TEST(Breaks, ScalesBeginWithTheVarianceTheyShould) {
  const auto none = observed("no-scale"), model = observed("sqrt-d-model");
  ASSERT_EQ(none.size(), find_break("no-scale")->questions.size());
  ASSERT_EQ(model.size(), find_break("sqrt-d-model")->questions.size());
  for (std::size_t i = 0; i < none[0].healthy.size(); ++i) {
    EXPECT_NEAR(none[0].broken[i] / none[0].healthy[i], 64, 0.01);          // (√d_k)²
    EXPECT_NEAR(model[0].broken[i] / model[0].healthy[i], 4.0 / 32, 1e-4);  // d_k / d_model
  }
  EXPECT_EQ(none[1].change(), Change::more);
  EXPECT_EQ(model[1].change(), Change::less);
}

}  // namespace
}  // namespace keel::lab
