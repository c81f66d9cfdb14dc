// The arms: one budget, one interface, and what each step by step computes.
#include "lab/translate/model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "keel/error.h"
#include "lab/translate/evaluation.h"
#include "lab/translate/search.h"
#include "lab/translate/training.h"

namespace keel::lab::translate {
namespace {

using nn::Tensor;

const Task& task() {
  static const Task one = make_task(generate_sets(1, {600, 40, 40, 40}), Units::automatic);
  return one;
}

std::unique_ptr<Model> model_of(const Arm& arm, std::uint64_t seed = 1) {
  nn::Random random(seed, arm.id);
  return make_model(arm, task().model_sizes(), random);
}

class EveryArm : public testing::TestWithParam<Arm> {};

TEST_P(EveryArm, HasTheBudgetOfParameters) {
  const auto count = static_cast<double>(model_of(GetParam())->parameter_count());
  const auto budget = static_cast<double>(task().model_sizes().parameters);
  EXPECT_LE(std::abs(count - budget), 0.05 * budget) << count << " of " << budget;
}

TEST_P(EveryArm, StepByStepIsTheWholeAtOnce) {
  const auto model = model_of(GetParam());
  const Batch batch = make_batch(task().test, grouped(task().test, 4, nullptr).front());
  const nn::NoGrad off;
  const Tensor whole = model->logits(batch.source, batch.before);
  Rows rows = model->start(batch.source);
  for (std::int64_t i = 0; i < batch.before.size(1); ++i) {
    const Tensor last = slice(batch.before, 1, i, i + 1).clone();
    const Tensor logits = model->step(rows, Tensor::of({last.size(0)}, [&] {
                                        const auto ids = last.data<std::int64_t>();
                                        return std::vector<std::int64_t>(ids.begin(), ids.end());
                                      }()));
    const std::vector<double> expected = slice(whole, 1, i, i + 1).values(), got = logits.values();
    for (std::size_t e = 0; e < got.size(); ++e) ASSERT_NEAR(got[e], expected[e], 2e-4) << "word " << i;
  }
}

TEST_P(EveryArm, WeightsOfAWordAddUpToOne) {
  const Coded& pair = task().test.front();
  const Tensor weights = weights_of(*model_of(GetParam()), pair);
  if (GetParam().look == Look::none) {
    EXPECT_FALSE(weights.given());
    return;
  }
  EXPECT_EQ(weights.shape(), (nn::Shape{std::ssize(pair.target) + 1, std::ssize(pair.source) + 1}));
  for (const double total : sum(weights, 1).values()) EXPECT_NEAR(total, 1.0, 1e-5);
}

TEST_P(EveryArm, Learns) {
  const auto model = model_of(GetParam());
  const double before = validate(*model, task().validation).loss;
  const Training training = train(*model, task().train, task().validation,
                                  {.steps = 30, .lr = 0.01, .warmup = 5, .points = 3}, [](std::int64_t) {});
  EXPECT_EQ(training.curve.size(), 3u);
  EXPECT_LT(training.curve.back().found.loss, 0.8 * before);
  EXPECT_GT(training.peak_bytes, 3 * 4 * model->parameter_count());  // parameters, and two of each for Adam
  EXPECT_LT(training.peak_bytes, 100'000'000);
  EXPECT_GT(training.words_per_second, 0);
}

TEST_P(EveryArm, ABeamOfOneIsGreedySearch) {
  const auto model = model_of(GetParam());
  train(*model, task().train, task().validation, {.steps = 40, .lr = 0.01, .warmup = 5, .points = 1},
        [](std::int64_t) {});
  for (std::size_t i = 0; i < 5; ++i) {
    const Tensor source = source_batch(task().test, {i});
    const Sentence one = greedy(*model, source, 20).front();
    EXPECT_EQ(beam(*model, source, 1, 20), one);
    EXPECT_LE(beam(*model, source, 4, 20).size(), 20u);
  }
}

INSTANTIATE_TEST_SUITE_P(Translate, EveryArm, testing::ValuesIn(arms()), [](const auto& tested) {
  std::string name = tested.param.id;
  std::erase(name, '-');
  return name;
});

// A model whose words are known: the next one's logits depend on the last word alone.
class Table : public Model {
 public:
  Tensor logits(const Tensor&, const Tensor&, Tensor*) const override { return {}; }
  Rows start(const Tensor& source) const override { return {Tensor::zeros({source.size(0), 1})}; }
  Tensor step(Rows&, const Tensor& last) const override {
    // 0 the end, 2 and 3 begin; 2 is likelier, but what follows it is not.
    const std::vector<std::vector<float>> probabilities = {{0.01f, 0.01f, 0.55f, 0.43f},
                                                           {0.25f, 0.25f, 0.25f, 0.25f},
                                                           {0.3f, 0.3f, 0.2f, 0.2f},
                                                           {0.97f, 0.01f, 0.01f, 0.01f}};
    std::vector<float> rows;
    for (const std::int64_t word : last.data<std::int64_t>()) {
      for (const float p : probabilities[static_cast<std::size_t>(word)]) rows.push_back(std::log(p));
    }
    return Tensor::of({last.size(0), 4}, rows);
  }
};

TEST(Search, ABeamFindsWhatGreedySearchMisses) {
  const Table table;
  const Tensor source = Tensor::of<std::int64_t>({1, 1}, {0});
  EXPECT_EQ(greedy(table, source, 10).front(), (Sentence{2}));
  EXPECT_EQ(beam(table, source, 2, 10), (Sentence{3}));
}

TEST(Arms, AnUnknownOneIsRefusedWithAList) {
  try {
    arm_by_id("cosine");
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("expected one of none, additive, dot-16"));
    EXPECT_THAT(error.what(), testing::HasSubstr("got 'cosine'"));
  }
}

TEST(Batches, HaveOneSourceLengthAndAllPairs) {
  nn::Random random(1);
  std::vector<std::size_t> seen;
  for (const auto& members : grouped(task().train, 32, &random)) {
    EXPECT_LE(members.size(), 32u);
    for (const std::size_t i : members) {
      EXPECT_EQ(task().train[i].source.size(), task().train[members.front()].source.size());
      seen.push_back(i);
    }
  }
  std::sort(seen.begin(), seen.end());
  EXPECT_EQ(seen.size(), task().train.size());
  EXPECT_EQ(std::adjacent_find(seen.begin(), seen.end()), seen.end());
}

}  // namespace
}  // namespace keel::lab::translate
