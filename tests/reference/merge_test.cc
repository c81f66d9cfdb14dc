#include <cmath>

#include "reference/call.h"

namespace keel::semantics {
namespace {

// One row, one value: out and lse of each part.
struct Part {
  double out, lse;
};
Part merged(const std::vector<Part>& list) {
  std::vector<Partial> parts;
  for (const Part& part : list) {
    parts.push_back({keel::view(&part.out, {1, 1, 1, 1}), row_view(&part.lse, {1, 1, 1})});
  }
  Part result{7.0, 7.0};
  merge(parts, keel::view(&result.out, {1, 1, 1, 1}), row_view(&result.lse, {1, 1, 1}));
  return result;
}

TEST(Merge, WeighsByTheExponentialOfLse) {
  const Part r = merged({{2.0, std::log(3.0)}, {-1.0, std::log(1.0)}, {4.0, std::log(6.0)}});
  EXPECT_NEAR(r.out, (3.0 * 2.0 - 1.0 + 6.0 * 4.0) / 10.0, 1e-15);
  EXPECT_NEAR(r.lse, std::log(10.0), 1e-15);
}

TEST(Merge, OfOnePartIsThatPart) {
  const Part r = merged({{2.5, -3.0}});
  EXPECT_EQ(r.out, 2.5);
  EXPECT_EQ(r.lse, -3.0);
}

TEST(Merge, IgnoresAPartThatSawNoKeyWhateverItsOutput) {
  for (const double out : {0.0, std::nan(""), HUGE_VAL}) {
    const Part r = merged({{out, -INFINITY}, {2.0, 1.0}});
    EXPECT_EQ(r.out, 2.0);
    EXPECT_EQ(r.lse, 1.0);
  }
}

TEST(Merge, OfPartsThatSawNoKeyIsAFullyMaskedRow) {
  const Part r = merged({{1.0, -INFINITY}, {2.0, -INFINITY}});
  EXPECT_EQ(r.out, 0.0);
  EXPECT_EQ(r.lse, -INFINITY);
}

TEST(Merge, KeepsNan) {
  const Part by_lse = merged({{1.0, NAN}, {2.0, 1.0}});
  EXPECT_TRUE(std::isnan(by_lse.out));
  EXPECT_TRUE(std::isnan(by_lse.lse));
  const Part by_out = merged({{NAN, 0.0}, {2.0, 1.0}});
  EXPECT_TRUE(std::isnan(by_out.out));
  EXPECT_FALSE(std::isnan(by_out.lse));
  const Part alone = merged({{1.0, NAN}, {2.0, -INFINITY}});
  EXPECT_TRUE(std::isnan(alone.out));
  EXPECT_TRUE(std::isnan(alone.lse));
}

TEST(Merge, DoesNotOverflow) {
  const Part r = merged({{1.0, 5000.0}, {3.0, 5000.0}, {100.0, -5000.0}});
  EXPECT_EQ(r.out, 2.0);
  EXPECT_EQ(r.lse, 5000.0 + std::log(2.0));
}

TEST(Merge, WorksWithoutLse) {
  const double out[] = {1.0, 5.0}, lse[] = {0.0, std::log(3.0)};
  double result = 0.0;
  const Partial parts[] = {{keel::view(&out[0], {1, 1, 1, 1}), row_view(&lse[0], {1, 1, 1})},
                           {keel::view(&out[1], {1, 1, 1, 1}), row_view(&lse[1], {1, 1, 1})}};
  merge(parts, keel::view(&result, {1, 1, 1, 1}));
  EXPECT_NEAR(result, 4.0, 1e-15);
}

TEST(Merge, TakesPartsInFloatForSixteenBitResults) {
  const float out[] = {1.0f, 2.0f}, lse[] = {0.0f, 0.0f};
  BFloat16 result, narrow{0x4000};  // 2
  const Partial parts[] = {{keel::view(&out[0], {1, 1, 1, 1}), row_view(&lse[0], {1, 1, 1})},
                           {keel::view(&narrow, {1, 1, 1, 1}), row_view(&lse[1], {1, 1, 1})}};
  merge(parts, keel::view(&result, {1, 1, 1, 1}));
  EXPECT_EQ(to_float(result), 1.5f);
}

TEST(Merge, OfManyPartsIsTheWhole) {
  const std::int64_t keys = 50;
  const Inputs x = random_inputs(2, 2, 1, 3, keys, 4, 3);
  const Results whole = attend(oracle, x);
  std::vector<Results> results;
  for (std::int64_t j = 0; j < keys; ++j) {  // each key alone, by a mask
    const Mask mask({1, 1, 1, keys}, [&](auto, auto, auto, std::int64_t at) { return at == j; });
    results.push_back(attend(oracle, x, {.mask = mask.view()}));
  }
  std::vector<Partial> parts;
  for (const Results& r : results) parts.push_back({view(r.out), rows(r.lse)});
  Dense out(whole.out.shape), lse(whole.lse.shape);
  merge(parts, out.tensor(), lse.rows());
  expect_near(out, whole.out);
  expect_near(lse, whole.lse);
}

}  // namespace
}  // namespace keel::semantics
