#include <cmath>

#include "reference/call.h"

// Fully masked rows, what hidden values may do (nothing), and what visible NaN does.
namespace keel::semantics {
namespace {

class Masking : public Semantics {};

void expect_masked_row(const Results& r, std::int64_t b, std::int64_t h, std::int64_t i) {
  for (std::int64_t c = 0; c < r.out.shape[3]; ++c) EXPECT_EQ(r.out.at(b, h, i, c), 0.0);
  for (std::int64_t j = 0; j < r.weights.shape[3]; ++j) EXPECT_EQ(r.weights.at(b, h, i, j), 0.0);
  EXPECT_EQ(r.lse.at(b, h, i), -INFINITY);
  EXPECT_EQ(r.max_logit.at(b, h, i), -INFINITY);
  for (const Dense* x : {&r.entropy, &r.max_weight, &r.logit_mean, &r.logit_var, &r.visible, &r.logit_count}) {
    EXPECT_EQ(x->at(b, h, i), 0.0);
  }
}

TEST_P(Masking, FullyMaskedRowIsZero) {
  const Inputs x = random_inputs(1, 2, 1, 4, 5, 3, 2);
  const Mask mask({1, 1, 4, 5}, [](auto, auto, std::int64_t i, auto) { return i != 2; });
  const std::vector<double> sink_values = {1.0, 2.0};
  for (const bool sinks : {false, true}) {
    Options options{.mask = mask.view()};
    if (sinks) options.sinks = heads(sink_values);
    const Results r = attend(x, options);
    for (std::int64_t h = 0; h < 2; ++h) {
      expect_masked_row(r, 0, h, 2);
      EXPECT_EQ(r.visible.at(0, h, 1), 5.0);
    }
  }
}

TEST_P(Masking, BiasOfMinusInfinityMasks) {
  const Inputs x = random_inputs(1, 1, 1, 2, 3, 3, 2);
  Dense bias({1, 1, 2, 3});
  bias.values = {-INFINITY, -INFINITY, -INFINITY, 0.5, -INFINITY, 0.5};
  const Results r = attend(x, {.bias = view(bias)});
  expect_masked_row(r, 0, 0, 0);
  EXPECT_EQ(r.visible.at(0, 0, 1), 2.0);
  EXPECT_EQ(r.weights.at(0, 0, 1, 1), 0.0);
}

TEST_P(Masking, BiasOfMinus1e30IsNotMasked) {
  const Inputs x = random_inputs(1, 1, 1, 2, 4, 3, 2);
  Dense bias({1, 1, 2, 4});
  bias.values = {-1e30, -1e30, -1e30, -1e30, -1e30, 0, 0, 0};
  const Results r = attend(x, {.bias = view(bias)});
  for (std::int64_t c = 0; c < 2; ++c) {
    double mean = 0.0;
    for (std::int64_t j = 0; j < 4; ++j) mean += x.v.at(0, 0, j, c) / 4.0;
    EXPECT_NEAR(r.out.at(0, 0, 0, c), mean, 1e-12);
  }
  EXPECT_DOUBLE_EQ(r.lse.at(0, 0, 0), -1e30);
  EXPECT_EQ(r.visible.at(0, 0, 0), 4.0);
  EXPECT_NEAR(r.entropy.at(0, 0, 0), std::log(4.0), 1e-12);
  EXPECT_NEAR(r.max_weight.at(0, 0, 0), 0.25, 1e-12);
  EXPECT_EQ(r.logit_var.at(0, 0, 0), 0.0);
  for (std::int64_t j = 0; j < 4; ++j) EXPECT_NEAR(r.weights.at(0, 0, 0, j), 0.25, 1e-12);
  EXPECT_EQ(r.weights.at(0, 0, 1, 0), 0.0);
  EXPECT_EQ(r.visible.at(0, 0, 1), 4.0);
}

TEST_P(Masking, NoKeysIsAFullyMaskedRow) {
  const Results r = attend(random_inputs(1, 2, 2, 3, 0, 4, 2));
  for (std::int64_t i = 0; i < 3; ++i) expect_masked_row(r, 0, 1, i);
}

TEST_P(Masking, RowsBeyondTheLengthAreFullyMasked) {
  const std::vector<std::int64_t> q_lengths = {2}, k_lengths = {3};
  const Results r = attend(random_inputs(1, 1, 1, 4, 5, 3, 2), {.q_lengths = q_lengths, .k_lengths = k_lengths});
  expect_masked_row(r, 0, 0, 2);
  expect_masked_row(r, 0, 0, 3);
  EXPECT_EQ(r.visible.at(0, 0, 1), 3.0);
}

TEST_P(Masking, QueriesBeforeTheFirstKeyAreFullyMasked) {
  const Results r = attend(random_inputs(1, 1, 1, 5, 2, 3, 2), {.causal = Causal::bottom_right});
  for (std::int64_t i = 0; i < 3; ++i) expect_masked_row(r, 0, 0, i);
  EXPECT_EQ(r.visible.at(0, 0, 3), 1.0);
  EXPECT_EQ(r.visible.at(0, 0, 4), 2.0);
}

// The same result whatever the hidden rows of k and v hold.
TEST_P(Masking, HiddenNanAndInfinityChangeNothing) {
  const Mask mask({1, 1, 1, 6}, [](auto, auto, auto, std::int64_t j) { return j != 1 && j != 4; });
  const Inputs clean = random_inputs(1, 2, 1, 5, 6, 4, 3);
  const Results want = attend(clean, {.mask = mask.view()});
  for (const double poison : {std::nan(""), HUGE_VAL, -HUGE_VAL}) {
    Inputs x = clean;
    for (const std::int64_t j : {1, 4}) {
      for (std::int64_t d = 0; d < 4; ++d) x.k.at(0, 0, j, d) = poison;
      for (std::int64_t d = 0; d < 3; ++d) x.v.at(0, 0, j, d) = poison;
    }
    expect_same(attend(x, {.mask = mask.view()}), want, 0.0);
  }
}

TEST_P(Masking, NanBehindTheDiagonalReachesLaterQueriesOnly) {
  Inputs x = random_inputs(1, 1, 1, 6, 6, 4, 3);
  const Results clean = attend(x, {.causal = Causal::top_left});
  x.k.at(0, 0, 3, 1) = NAN;
  const Results r = attend(x, {.causal = Causal::top_left});
  for (std::int64_t i = 0; i < 6; ++i) {
    for (std::int64_t c = 0; c < 3; ++c) {
      if (i < 3) {
        EXPECT_EQ(r.out.at(0, 0, i, c), clean.out.at(0, 0, i, c));
      } else {
        EXPECT_TRUE(std::isnan(r.out.at(0, 0, i, c)));
      }
    }
  }
}

TEST_P(Masking, VisibleNanMakesEveryStatisticNanExceptTheCount) {
  Inputs x = random_inputs(1, 1, 1, 2, 5, 4, 3);
  x.q.at(0, 0, 1, 0) = NAN;
  const Results r = attend(x);
  for (const Dense* y : {&r.lse, &r.max_logit, &r.entropy, &r.max_weight, &r.logit_mean, &r.logit_var}) {
    EXPECT_TRUE(std::isfinite(y->at(0, 0, 0)));
    EXPECT_TRUE(std::isnan(y->at(0, 0, 1)));
  }
  EXPECT_EQ(r.visible.at(0, 0, 1), 5.0);
}

TEST_P(Masking, NanInAVisibleValueStaysInItsColumn) {
  Inputs x = random_inputs(1, 1, 1, 2, 5, 4, 3);
  x.v.at(0, 0, 4, 1) = NAN;
  for (const double dropout : {0.0, 1.0}) {  // dropped or not, it is visible
    const Results r = attend(x, {.dropout = dropout});
    for (std::int64_t i = 0; i < 2; ++i) {
      EXPECT_TRUE(std::isfinite(r.out.at(0, 0, i, 0)));
      EXPECT_TRUE(std::isnan(r.out.at(0, 0, i, 1)));
      EXPECT_TRUE(std::isfinite(r.lse.at(0, 0, i)));
    }
  }
}

TEST_P(Masking, ScoresThatAreAllMinusInfinityByArithmeticGiveNan) {
  Inputs x = random_inputs(1, 1, 1, 1, 3, 1, 2);
  x.q.at(0, 0, 0, 0) = -1.0;
  for (std::int64_t j = 0; j < 3; ++j) x.k.at(0, 0, j, 0) = INFINITY;
  const Results r = attend(x);
  EXPECT_TRUE(std::isnan(r.out.at(0, 0, 0, 0)));
  for (const Dense* y : {&r.lse, &r.entropy, &r.logit_mean, &r.logit_var}) EXPECT_TRUE(std::isnan(y->at(0, 0, 0)));
  EXPECT_EQ(r.visible.at(0, 0, 0), 3.0);
}

TEST_P(Masking, ScoresOfAHundredThousandDoNotOverflow) {
  Inputs x = random_inputs(1, 1, 1, 4, 9, 4, 3);
  for (double& value : x.q.values) value *= 1e5;
  const Results r = attend(x);
  for (std::int64_t i = 0; i < 4; ++i) {
    double sum = 0.0;
    for (std::int64_t j = 0; j < 9; ++j) sum += r.weights.at(0, 0, i, j);
    EXPECT_NEAR(sum, 1.0, 1e-9);
    EXPECT_TRUE(std::isfinite(r.out.at(0, 0, i, 0)));
  }
}

INSTANTIATE_TEST_SUITE_P(Both, Masking, kBoth, name_of_run);

TEST(MaskedGradients, AreZeroForFullyMaskedRowsAndHiddenKeys) {
  const Inputs x = random_inputs(1, 1, 1, 3, 4, 3, 2);
  const Mask mask({1, 1, 3, 4}, [](auto, auto, std::int64_t i, std::int64_t j) { return i != 1 && j != 2; });
  const Options options{.mask = mask.view()};
  const Results r = attend(oracle, x, options);
  const Dense dout = random_dense(r.out.shape, 5), dlse = random_dense(r.lse.shape, 6);
  Dense dq(x.q.shape), dk(x.k.shape), dv(x.v.shape);
  attention_backward({.q = view(x.q),
                      .k = view(x.k),
                      .v = view(x.v),
                      .out = view(r.out),
                      .lse = rows(r.lse),
                      .dout = view(dout),
                      .dlse = rows(dlse)},
                     {.dq = dq.tensor(), .dk = dk.tensor(), .dv = dv.tensor()}, options);
  for (std::int64_t c = 0; c < 3; ++c) {
    EXPECT_EQ(dq.at(0, 0, 1, c), 0.0);
    EXPECT_NE(dq.at(0, 0, 0, c), 0.0);
    EXPECT_EQ(dk.at(0, 0, 2, c), 0.0);
    EXPECT_NE(dk.at(0, 0, 1, c), 0.0);
  }
  for (std::int64_t c = 0; c < 2; ++c) EXPECT_EQ(dv.at(0, 0, 2, c), 0.0);
}

}  // namespace
}  // namespace keel::semantics
