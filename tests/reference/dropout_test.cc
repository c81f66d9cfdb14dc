#include "core/dropout.h"

#include <cmath>

#include "reference/call.h"

namespace keel::semantics {
namespace {

using Words = std::array<std::uint32_t, 4>;

// The known answers of the authors' own test suite for philox4x32-7 and philox4x32-10.
TEST(Philox, GivesTheKnownAnswers) {
  const Words none{}, ones = {0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
                      pi = {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344};
  EXPECT_EQ(philox<7>(none, {0, 0}), (Words{0x5f6fb709, 0x0d893f64, 0x4f121f81, 0x4f730a48}));
  EXPECT_EQ(philox<7>(ones, {0xffffffff, 0xffffffff}), (Words{0x5207ddc2, 0x45165e59, 0x4d8ee751, 0x8c52f662}));
  EXPECT_EQ(philox<7>(pi, {0xa4093822, 0x299f31d0}), (Words{0x4dfccaba, 0x190a87f0, 0xc47362ba, 0xb6b5242a}));
  EXPECT_EQ(philox<10>(none, {0, 0}), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox<10>(ones, {0xffffffff, 0xffffffff}), (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox<10>(pi, {0xa4093822, 0x299f31d0}), (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(DropoutNumbers, DependOnEachPartOfThePositionAndOnTheSeed) {
  const Dropout dropout(0.5, 42), other(0.5, 43), high(0.5, 42 + (std::uint64_t{1} << 32));
  int entry = 0, head = 0, query = 0, key = 0, seed = 0, upper = 0;
  for (std::int64_t j = 0; j < 1000; ++j) {
    const double at = dropout.multiplier(1, 2, 3, j);
    entry += at != dropout.multiplier(2, 2, 3, j);
    head += at != dropout.multiplier(1, 3, 3, j);
    query += at != dropout.multiplier(1, 2, 4, j);
    key += at != dropout.multiplier(1, 2, 3, j + 1000);
    seed += at != other.multiplier(1, 2, 3, j);
    upper += at != high.multiplier(1, 2, 3, j);
  }
  for (const int differing : {entry, head, query, key, seed, upper}) EXPECT_NEAR(differing, 500, 80);
}

// The bits of a counter are shared by keys 8 apart: none are used twice within a row.
TEST(DropoutNumbers, DifferBetweenTheKeysOfARow) {
  for (std::int64_t step = 1; step < 256; ++step) {
    const Dropout dropout(0.5, 7);
    int differing = 0;
    for (std::int64_t j = 0; j < 1000; ++j) {
      differing += dropout.multiplier(0, 0, 0, j) != dropout.multiplier(0, 0, 0, j + step);
    }
    EXPECT_NEAR(differing, 500, 100) << "keys " << step << " apart";
  }
}

TEST(DropoutNumbers, DropTheRequestedShare) {
  for (const double probability : {0.0, 0x1p-18, 0.01, 0.1, 0.5, 0.9, 0.999, 1 - 0x1p-18, 1.0}) {
    const Dropout dropout(probability, 1);
    const double rounded = std::round(probability * 0x1p16) * 0x1p-16;
    constexpr int kCount = 200'000;
    int dropped = 0;
    for (int n = 0; n < kCount; ++n) {
      const double z = dropout.multiplier(0, n % 7, n / 1000, n % 1000);
      dropped += z == 0.0;
      EXPECT_TRUE(z == 0.0 || std::fabs(z * (1.0 - rounded) - 1.0) < 1e-12);
    }
    EXPECT_NEAR(rounded, probability, 0x1p-17);
    const double deviation = std::sqrt(kCount * probability * (1.0 - probability));
    EXPECT_NEAR(dropped, kCount * probability, 5.0 * deviation + 1e-9);
  }
}

class DropoutOfWeights : public Semantics {};

TEST_P(DropoutOfWeights, ZeroesOrScalesEachWeight) {
  const Inputs x = random_inputs(2, 2, 1, 9, 70, 4, 3);
  const Results plain = attend(x), r = attend(x, {.dropout = 0.25, .seed = 99});
  int dropped = 0;
  for (std::size_t at = 0; at < plain.weights.values.size(); ++at) {
    const double w = r.weights.values[at];
    if (w == 0.0) {
      ++dropped;
    } else {
      EXPECT_NEAR(w, plain.weights.values[at] / 0.75, 1e-12);
    }
  }
  EXPECT_NEAR(dropped / static_cast<double>(plain.weights.values.size()), 0.25, 0.03);
}

TEST_P(DropoutOfWeights, KeepsTheMeanOfTheOutput) {
  const Inputs x = random_inputs(1, 1, 1, 1, 12, 4, 2);
  const Results plain = attend(x);
  Dense mean(plain.out.shape);
  constexpr int kSeeds = 4000;
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    const Results r = attend(x, {.dropout = 0.3, .seed = seed});
    for (std::size_t c = 0; c < 2; ++c) mean.values[c] += r.out.values[c] / kSeeds;
  }
  expect_near(mean, plain.out, 0.03);
}

TEST_P(DropoutOfWeights, OfOneGivesZero) {
  const Inputs x = random_inputs(1, 2, 2, 3, 5, 4, 2);
  const Results r = attend(x, {.dropout = 1.0}), plain = attend(x);
  for (const double value : r.out.values) EXPECT_EQ(value, 0.0);
  expect_near(r.lse, plain.lse);
}

TEST_P(DropoutOfWeights, IsTheSameForTheSameSeedAndAnotherForAnother) {
  const Inputs x = random_inputs(1, 2, 2, 8, 40, 4, 2);
  const Results a = attend(x, {.dropout = 0.5, .seed = 5}), b = attend(x, {.dropout = 0.5, .seed = 5}),
                c = attend(x, {.dropout = 0.5, .seed = 6});
  EXPECT_EQ(a.weights.values, b.weights.values);
  EXPECT_NE(a.weights.values, c.weights.values);
}

INSTANTIATE_TEST_SUITE_P(Both, DropoutOfWeights, kBoth, name_of_run);

}  // namespace
}  // namespace keel::semantics
