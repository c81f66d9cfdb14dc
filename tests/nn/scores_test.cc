// Score functions against values worked out by hand, and what the attention layer makes of them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <limits>
#include <string>

#include "keel/nn/nn.h"

namespace keel::nn {
namespace {

void set(const Tensor& parameter, const std::vector<double>& values) {
  ASSERT_EQ(parameter.elements(), std::ssize(values));
  for (std::size_t i = 0; i < values.size(); ++i) parameter.data<double>()[i] = values[i];
}

// softmax of what was worked out by hand
std::vector<double> weights(std::vector<double> scores) {
  double l = 0;
  for (double& s : scores) l += s = std::exp(s);
  for (double& s : scores) s /= l;
  return scores;
}

// One query s = (1, 2) and the keys h = (1, 0), (−1, 1), (0.5, 0.5).
class LuongAndBahdanau : public testing::Test {
 protected:
  void expect_scores(Attention& layer, const std::vector<double>& scores) {
    AttentionReport report{.with_weights = true};
    layer(s, h, v, {}, &report);
    const std::vector<double> expected = weights(scores);
    for (std::size_t j = 0; j < 3; ++j) EXPECT_NEAR(report.weights.values()[j], expected[j], 1e-12) << "key " << j;
    EXPECT_NEAR(report.max_logit.values()[0], *std::max_element(scores.begin(), scores.end()), 1e-12);
  }

  const Tensor s = Tensor::of<double>({1, 1, 2}, {1, 2});
  const Tensor h = Tensor::of<double>({1, 3, 2}, {1, 0, -1, 1, 0.5, 0.5});
  const Tensor v = Tensor::of<double>({1, 3, 1}, {1, 10, 100});
  Random random{1};
};

TEST_F(LuongAndBahdanau, Dot) {
  Attention a(std::make_unique<DotScore>());
  expect_scores(a, {1, 1, 1.5});
}

TEST_F(LuongAndBahdanau, General) {
  auto score = std::make_unique<GeneralScore>(2, 2, random);
  score->to(DType::f64);
  set(score->W, {1, 2, 0, -1});  // W h = (1, 0), (1, −1), (1.5, −0.5)
  Attention a(std::move(score));
  expect_scores(a, {1, -1, 0.5});
}

TEST_F(LuongAndBahdanau, Concat) {
  auto score = std::make_unique<ConcatScore>(2, 2, 2, random);
  score->to(DType::f64);
  set(score->W, {1, 0, 1, 0, /**/ 0, 0.5, 0, 1});  // W [s; h] = (1 + h_1, 1 + h_2)
  set(score->v, {2, -1});
  Attention a(std::move(score));
  expect_scores(a, {2 * std::tanh(2.0) - std::tanh(1.0), 2 * std::tanh(0.0) - std::tanh(2.0),
                    2 * std::tanh(1.5) - std::tanh(1.5)});
}

TEST_F(LuongAndBahdanau, Location) {
  auto score = std::make_unique<LocationScore>(2, 4, random);
  score->to(DType::f64);
  set(score->W, {1, 0, /**/ 0, 1, /**/ 1, -1, /**/ 9, 9});  // the fourth place has no key
  Attention a(std::move(score));
  expect_scores(a, {1, 2, -1});
}

TEST_F(LuongAndBahdanau, Additive) {
  auto score = std::make_unique<AdditiveScore>(2, 2, 2, random);
  score->to(DType::f64);
  set(score->W_s, {1, 0, 0, 0.5});  // (1, 1)
  set(score->W_h, {1, 0, 0, 1});
  set(score->v, {2, -1});
  Attention a(std::move(score));
  expect_scores(a, {2 * std::tanh(2.0) - std::tanh(1.0), 2 * std::tanh(0.0) - std::tanh(2.0),
                    2 * std::tanh(1.5) - std::tanh(1.5)});
}

TEST_F(LuongAndBahdanau, ScaledAndWronglyScaledDot) {
  const double root = std::sqrt(2.0);
  Attention scaled(std::make_unique<ScaledDotScore>());
  expect_scores(scaled, {1 / root, 1 / root, 1.5 / root});
  Attention none(WrongScaleScore::none());
  expect_scores(none, {1, 1, 1.5});
  Attention by_model(WrongScaleScore::by_model_size(64));
  expect_scores(by_model, {1 / 8.0, 1 / 8.0, 1.5 / 8});
  auto temperature = std::make_unique<TemperatureScore>(1, 2);
  temperature->to(DType::f64);
  set(temperature->tau, {4});
  Attention learned(std::move(temperature));
  expect_scores(learned, {0.25, 0.25, 0.375});
  auto query = std::make_unique<QueryScaleScore>(1, 2);
  query->to(DType::f64);
  set(query->w, {1, -1});  // w·s = −1
  set(query->b, {2});
  Attention own(std::move(query));
  const double scale = std::exp(1.0) / root;
  expect_scores(own, {scale, scale, 1.5 * scale});
}

TEST(AttentionLayer, ScoresBeginAsScaledDot) {
  Random random(1);
  const Tensor q = random.normal({2, 3, 4, 8}), k = random.normal({2, 3, 5, 8}), v = random.normal({2, 3, 5, 2});
  const std::vector<double> expected = ScaledDotProductAttention()(q, k, v).values();
  Attention temperature(std::make_unique<TemperatureScore>(3, 8)), query(std::make_unique<QueryScaleScore>(3, 8));
  for (const Attention* layer : {&temperature, &query}) {
    const std::vector<double> got = (*layer)(q, k, v).values();
    for (std::size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], expected[i], 1e-6);
  }
}

TEST(AttentionLayer, MaskedKeysDoNotLeakThroughAdditiveScores) {
  Random random(1);
  Attention layer(std::make_unique<AdditiveScore>(3, 3, 4, random));
  Tensor q = random.normal({1, 2, 3}), k = random.normal({1, 4, 3}), v = random.normal({1, 4, 3});
  const std::vector<double> clean = layer(q, k, v, {.k_lengths = {3}}).values();
  for (float* x : {k.data<float>().data(), v.data<float>().data()}) {
    for (int i = 9; i < 12; ++i) x[i] = std::numeric_limits<float>::quiet_NaN();
  }
  q.require_grad();
  const Tensor y = layer(q, k, v, {.k_lengths = {3}});
  EXPECT_EQ(y.values(), clean);
  sum(y).backward();
  for (const double g : q.grad().values()) EXPECT_FALSE(std::isnan(g));
}

// The most memory this process ever had.
std::int64_t peak_bytes() {
  std::ifstream file("/proc/self/status");
  for (std::string word; file >> word;) {
    if (word != "VmHWM:") continue;
    std::int64_t kilobytes = 0;
    file >> kilobytes;
    return kilobytes * 1024;
  }
  return 0;
}

TEST(AttentionLayer, AdditiveScoresTakeNoMemoryPerPairAndUnit) {
  Random random(1);
  const std::int64_t n = 300, d_a = 600;  // n × n × d_a would be 216 MB
  Attention layer(std::make_unique<AdditiveScore>(2, 2, d_a, random));
  const Tensor q = random.normal({1, n, 2}), k = random.normal({1, n, 2}), v = random.normal({1, n, 2});
  const std::int64_t before = peak_bytes();
  sum(layer(q, k, v)).backward();
  EXPECT_LT(peak_bytes() - before, 30 << 20);
}

TEST(AttentionLayer, PreparedKeysGiveTheSame) {
  Random random(1);
  const Tensor q = random.normal({2, 3, 8}), k = random.normal({2, 5, 8}), v = random.normal({2, 5, 4});
  const auto same = [&](std::unique_ptr<ScoreFunction> score) {
    const Attention layer(std::move(score));
    const Tensor heads = reshape(k, {2, 1, 5, 8}), prepared = layer.score().prepared(heads);
    const Tensor once = layer.with_prepared(reshape(q, {2, 1, 3, 8}), prepared, reshape(v, {2, 1, 5, 4}));
    EXPECT_EQ(reshape(once, {2, 3, 4}).values(), layer(q, k, v).values());
  };
  same(std::make_unique<AdditiveScore>(8, 8, 6, random));
  same(std::make_unique<GeneralScore>(8, 8, random));
  same(std::make_unique<ScaledDotScore>());
}

TEST(AttentionLayer, HandsOutWeightsAndStatistics) {
  Random random(1);
  Attention layer(std::make_unique<AdditiveScore>(3, 3, 4, random));
  AttentionReport report{.with_weights = true};
  layer(random.normal({2, 4, 3}), random.normal({2, 4, 3}), random.normal({2, 4, 3}), {.causal = Causal::top_left},
        &report);
  ASSERT_EQ(report.weights.shape(), (Shape{2, 1, 4, 4}));
  EXPECT_EQ(report.weights.at({0, 0, 0, 1}), 0);
  EXPECT_EQ(report.entropy.at({0, 0, 0}), 0);
  EXPECT_GT(report.entropy.at({0, 0, 3}), 0);
  ASSERT_EQ(report.heads.size(), 2u);
  EXPECT_EQ(report.heads[0].rows, 4);
}

}  // namespace
}  // namespace keel::nn
