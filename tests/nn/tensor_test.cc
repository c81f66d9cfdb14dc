// Tensors and the tape: what is shared, what is copied, what is remembered and for how long.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "keel/nn/nn.h"

namespace keel::nn {
namespace {

using testing::ElementsAre;

TEST(Tensor, HandlesShareTheirElements) {
  const Tensor a = Tensor::of<float>({2, 2}, {1, 2, 3, 4});
  const Tensor b = a, t = transpose(a, 0, 1), s = slice(a, 0, 1, 2);
  a.data<float>()[2] = 7;
  EXPECT_EQ(b.at({1, 0}), 7);
  EXPECT_EQ(t.at({0, 1}), 7);
  EXPECT_EQ(s.at({0, 0}), 7);
  EXPECT_EQ(a.clone().at({1, 0}), 7);
}

TEST(Tensor, ReshapeOfATransposeReadsInOrder) {
  const Tensor a = Tensor::of<double>({2, 3}, {1, 2, 3, 4, 5, 6});
  EXPECT_THAT(reshape(transpose(a, 0, 1), {6}).values(), ElementsAre(1, 4, 2, 5, 3, 6));
  EXPECT_THAT(reshape(slice(a, 1, 1, 3), {2, 2, 1}).values(), ElementsAre(2, 3, 5, 6));
  // Heads of (B, N, H·d) and back, without a copy.
  const Tensor x = Tensor::zeros({2, 5, 6});
  const Tensor heads = transpose(reshape(x, {2, 5, 3, 2}), 1, 2);
  const Tensor back = reshape(transpose(heads, 1, 2), {2, 5, 6});
  back.data<float>()[0] = 3;
  EXPECT_EQ(x.at({0, 0, 0}), 3);
}

TEST(Tensor, OperationsOnEmptyTensorsGiveEmptyTensors) {
  const Tensor none = Tensor::zeros({0, 3});
  EXPECT_EQ((none + Tensor::zeros({3})).shape(), (Shape{0, 3}));
  EXPECT_EQ(matmul(none, Tensor::zeros({3, 2})).shape(), (Shape{0, 2}));
  EXPECT_THAT(matmul(transpose(none, 0, 1), Tensor::zeros({0, 2})).values(), ElementsAre(0, 0, 0, 0, 0, 0));
  EXPECT_EQ(sum(none).item(), 0);
  EXPECT_EQ(softmax(none).shape(), (Shape{0, 3}));
  EXPECT_EQ(reshape(none, {3, 0, 2}).shape(), (Shape{3, 0, 2}));
}

TEST(Tensor, MapsAtTheirEdges) {
  const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  const Tensor x = Tensor::of<float>({9}, {-inf, -1e30f, -100, -0.1f, 0, 0.1f, 100, 1e30f, inf});
  EXPECT_THAT(sigmoid(x).values(), testing::Each(testing::AllOf(testing::Ge(0), testing::Le(1))));
  EXPECT_THAT(tanh(x).values(), ElementsAre(-1, -1, -1, testing::DoubleNear(std::tanh(-0.1f), 1e-8), 0,
                                            testing::DoubleNear(std::tanh(0.1f), 1e-8), 1, 1, 1));
  EXPECT_EQ(exp(x).at({8}), inf);
  EXPECT_EQ(exp(x).at({7}), inf);
  EXPECT_EQ(exp(x).at({0}), 0);
  const Tensor y = Tensor::of<float>({3}, {1, nan, 2});
  for (const auto& f : {relu, gelu, tanh, sigmoid, exp, log}) {
    EXPECT_TRUE(std::isnan(f(y).at({1})));
    EXPECT_FALSE(std::isnan(f(y).at({2})));
  }
  EXPECT_TRUE(std::isnan(softmax(y).at({0})));
}

TEST(Tensor, MapsAreExactToSomeUnitsInTheLastPlace) {
  Random random(1);
  const Tensor x = random.uniform({10000}, -9, 9, DType::f64);
  const auto nearly = [&](const Tensor& got, double (*f)(double)) {
    for (std::size_t i = 0; i < 10000; ++i) {
      const double expected = f(x.data<double>()[i]);
      ASSERT_NEAR(got.data<double>()[i], expected, 4e-15 * std::abs(expected)) << "at " << x.data<double>()[i];
    }
  };
  nearly(tanh(x), [](double v) { return std::tanh(v); });
  nearly(exp(x), [](double v) { return std::exp(v); });
  nearly(sigmoid(x), [](double v) { return 1 / (1 + std::exp(-v)); });
}

TEST(Tape, NoGradLeavesNone) {
  const Tensor w = Tensor::full({2}, 3.0).require_grad();
  {
    const NoGrad off;
    EXPECT_FALSE((w * w).requires_grad());
  }
  EXPECT_TRUE((w * w).requires_grad());
  EXPECT_FALSE((w.detach() * 2.0).requires_grad());
}

TEST(Tape, GradientsAddUpUntilTheyAreZeroed) {
  Tensor w = Tensor::full({2}, 3.0).require_grad();
  sum(w * w).backward();
  const Tensor first = w.grad();
  sum(w * w).backward();
  EXPECT_THAT(w.grad().values(), ElementsAre(12, 12));
  EXPECT_THAT(first.values(), ElementsAre(6, 6)) << "a gradient somebody holds must not change under him";
  w.zero_grad();
  EXPECT_FALSE(w.grad().given());
}

TEST(Tape, AWeightUsedSeveralTimesGetsTheSumOfItsGradients) {
  const Tensor w = Tensor::of<float>({2, 3}, {1, 2, 3, 4, 5, 6}).require_grad();
  const auto uses = [&] {  // rows (1, 10, 100), doubled at each use
    Tensor y = Tensor::zeros({1, 2});
    for (const float x : {1.f, 2.f, 4.f}) y = y + linear(Tensor::of<float>({1, 3}, {x, 10 * x, 100 * x}), w, Tensor());
    return sum(y);
  };
  uses().backward();
  EXPECT_THAT(w.grad().values(), ElementsAre(7, 70, 700, 7, 70, 700));
  const Tensor first = w.grad();
  uses().backward();
  EXPECT_THAT(w.grad().values(), ElementsAre(14, 140, 1400, 14, 140, 1400));
  EXPECT_THAT(first.values(), ElementsAre(7, 70, 700, 7, 70, 700)) << "a gradient that somebody holds must not change";
}

TEST(Tape, GradientsOfLeavesAreDense) {
  const Tensor w = Tensor::full({2, 3}, 3.0).require_grad();
  sum(w).backward();
  EXPECT_THAT(w.grad().data<float>(), ElementsAre(1, 1, 1, 1, 1, 1));
  w.zero_grad();
  transpose(w, 0, 1).backward(Tensor::of<float>({3, 2}, {1, 2, 3, 4, 5, 6}));
  EXPECT_THAT(w.grad().data<float>(), ElementsAre(1, 3, 5, 2, 4, 6));
}

TEST(Tape, RunsOnce) {
  const Tensor w = Tensor::full({}, 3.0).require_grad();
  const Tensor y = w * w;
  y.backward();
  EXPECT_THROW(y.backward(), Error);
  EXPECT_THROW((y * 2.0).backward(), Error);
}

TEST(Tape, ALongOneIsFreedWithoutRecursion) {
  const Tensor w = Tensor::full({1}, 1.0).require_grad();
  {
    Tensor dropped = w;
    for (int i = 0; i < 100'000; ++i) dropped = dropped * w;
  }
  Tensor x = w;
  for (int i = 0; i < 100'000; ++i) x = x + w;
  x.backward();
  EXPECT_EQ(w.grad().item(), 100'001);
}

TEST(Tape, MemoryIsFreedAsItRuns) {
  const Tensor w = Tensor::full({3}, 1.0).require_grad();
  std::weak_ptr<Tensor::Impl> middle;
  Tensor loss;
  {
    const Tensor h = w * w;
    middle = h.impl();
    loss = sum(h * h);
  }
  EXPECT_FALSE(middle.expired());
  loss.backward();
  EXPECT_TRUE(middle.expired());
}

TEST(Random, IsAFunctionOfSeedStreamAndPlace) {
  Random a(1, "x"), b(1, "x"), c(1, "y"), d(2, "x");
  const std::uint64_t first = a.bits(), second = a.bits();
  EXPECT_EQ(b.bits(), first);
  EXPECT_NE(c.bits(), first);
  EXPECT_NE(d.bits(), first);
  b.seek(1);
  EXPECT_EQ(b.bits(), second);
  std::vector<int> seen(7);
  for (int i = 0; i < 7000; ++i) ++seen[static_cast<std::size_t>(a.below(7))];
  EXPECT_THAT(seen, testing::Each(testing::AllOf(testing::Gt(850), testing::Lt(1150))));
}

TEST(Dropout, KeepsTheMeanAndIsOffInEval) {
  const auto random = std::make_shared<Random>(3);
  Dropout half(0.25, random);
  const Tensor ones = Tensor::full({100, 1000}, 1.0);
  const Tensor y = half(ones);
  EXPECT_NEAR(mean(y).item(), 1.0, 0.01);
  EXPECT_THAT(y.values(), testing::Each(testing::AnyOf(0.0, testing::DoubleNear(1 / 0.75, 1e-6))));
  half.eval();
  EXPECT_EQ(half(ones).impl(), ones.impl());
}

}  // namespace
}  // namespace keel::nn
