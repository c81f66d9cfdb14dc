#include <cmath>
#include <limits>

#include "reference/call.h"

// key_sums by its definition: the column sums of the weights, dropout aside.
namespace keel::semantics {
namespace {

class KeySums : public Semantics {
 protected:
  // The sums, and the weights that they ought to be sums of.
  struct Sums {
    Dense sums, weights;
  };
  static Sums key_sums(const Inputs& x, Options options, std::int64_t rows = 0) {
    const std::int64_t b = x.q.shape[0], h = x.q.shape[1], n_q = x.q.shape[2], n_k = x.k.shape[2];
    Sums s{Dense({b, h, n_k, 1}), Dense({b, h, n_q, n_k})};
    s.sums.values.assign(s.sums.values.size(), 7.0);
    Dense out({b, h, n_q, x.v.shape[3]});
    GetParam().forward(view(x.q), view(x.k), view(x.v), out.tensor(), options,
                       {.key_sums = s.sums.rows(), .key_sum_rows = rows});
    options.dropout = 0.0;
    GetParam().forward(view(x.q), view(x.k), view(x.v), out.tensor(), options, {.weights = s.weights.tensor()});
    return s;
  }
  // Column sums over the rows that `counts` names.
  template <class Counts>
  static Dense column_sums(const Dense& weights, Counts counts) {
    Dense sums({weights.shape[0], weights.shape[1], weights.shape[3], 1});
    for (std::int64_t b = 0; b < weights.shape[0]; ++b) {
      for (std::int64_t h = 0; h < weights.shape[1]; ++h) {
        for (std::int64_t i = 0; i < weights.shape[2]; ++i) {
          for (std::int64_t j = 0; j < weights.shape[3] && counts(b, i); ++j) {
            sums.at(b, h, j) += weights.at(b, h, i, j);
          }
        }
      }
    }
    return sums;
  }
};

TEST_P(KeySums, AreTheColumnSumsOfTheWeightsBeforeDropout) {
  const Inputs x = random_inputs(2, 4, 2, 9, 21, 4, 3);
  const std::vector<double> sinks = {0.3, -1.0, 2.0, 0.0};
  for (const Causal causal : {Causal::none, Causal::bottom_right}) {
    const Sums s = key_sums(x, {.causal = causal, .sinks = heads(sinks), .dropout = 0.4, .seed = 5});
    expect_near(s.sums, column_sums(s.weights, [](auto, auto) { return true; }));
  }
}

TEST_P(KeySums, OfTheLastRowsCountThoseOfEachEntryPaddingAside) {
  const Inputs x = random_inputs(3, 2, 1, 9, 12, 4, 3);
  const std::vector<std::int64_t> lengths = {9, 4, 0}, keys = {12, 7, 3};
  const Sums padded = key_sums(x, {.q_lengths = lengths, .k_lengths = keys}, 5);
  expect_near(padded.sums, column_sums(padded.weights, [&](std::int64_t b, std::int64_t i) {
                return i >= lengths[b] - 5 && i < lengths[b];
              }));
  for (std::int64_t j = keys[1]; j < 12; ++j) EXPECT_EQ(padded.sums.at(1, 1, j), 0.0);

  const Inputs y = random_inputs(1, 2, 1, 9, 12, 4, 3);
  const std::vector<std::int64_t> q_offsets = {0, 6, 6, 9}, k_offsets = {0, 5, 8, 12};
  const Sums packed = key_sums(y, {.q_offsets = q_offsets, .k_offsets = k_offsets}, 2);
  expect_near(packed.sums,
              column_sums(packed.weights, [](auto, std::int64_t i) { return i == 4 || i == 5 || i == 7 || i == 8; }));
  for (std::int64_t j = 5; j < 8; ++j) EXPECT_EQ(packed.sums.at(0, 0, j), 0.0);  // an entry without queries
}

TEST_P(KeySums, ARowThatIsNanReachesTheKeysThatItSeesAndNoOthers) {
  Inputs x = random_inputs(1, 1, 1, 6, 6, 4, 3);
  x.q.at(0, 0, 2, 1) = NAN;
  const Sums s = key_sums(x, {.causal = Causal::top_left});
  for (std::int64_t j = 0; j < 6; ++j) EXPECT_EQ(std::isnan(s.sums.at(0, 0, j)), j <= 2) << j;
  const Sums later = key_sums(x, {.causal = Causal::top_left}, 3);  // which leaves that row out
  for (std::int64_t j = 0; j < 6; ++j) EXPECT_FALSE(std::isnan(later.sums.at(0, 0, j))) << j;
}

TEST_P(KeySums, AFullyMaskedRowAddsNothing) {
  const Inputs x = random_inputs(1, 1, 1, 5, 7, 4, 3);
  const Mask mask({1, 1, 5, 7}, [](auto, auto, std::int64_t i, std::int64_t j) { return i != 3 && j != 2; });
  const std::vector<double> sink = {0.5};
  const Sums s = key_sums(x, {.mask = mask.view(), .sinks = heads(sink)});
  expect_near(s.sums, column_sums(s.weights, [](auto, auto) { return true; }));
  EXPECT_EQ(s.sums.at(0, 0, 2), 0.0);
  const Mask none({1, 1, 1, 1}, [](auto...) { return false; });
  for (const double sum : key_sums(x, {.mask = none.view()}).sums.values) EXPECT_EQ(sum, 0.0);
}

// lse cannot hold log 7 beside −1e30, so the weights must not come from it.
TEST_P(KeySums, DoNotNeedAnLseThatHoldsTheWeights) {
  const Inputs x = random_inputs(1, 1, 1, 5, 7, 4, 3);
  const Dense bias = [] {
    Dense low({1, 1, 1, 1});
    low.values = {-1e30};
    return low;
  }();
  for (const double sum : key_sums(x, {.bias = view(bias)}).sums.values) EXPECT_NEAR(sum, 5.0 / 7.0, 1e-12);
}

TEST_P(KeySums, WithoutQueriesAreZero) {
  const Inputs x = random_inputs(2, 2, 1, 0, 7, 4, 3);
  for (const double sum : key_sums(x, {}).sums.values) EXPECT_EQ(sum, 0.0);
}

INSTANTIATE_TEST_SUITE_P(Both, KeySums, kBoth, name_of_run);

}  // namespace
}  // namespace keel::semantics
