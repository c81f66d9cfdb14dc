#include <cmath>
#include <functional>

#include "reference/call.h"

namespace keel::semantics {
namespace {

using MergeFunction = std::function<void(std::span<const Partial>, const MutableTensorView&, const Outputs&)>;

struct MergeRun {
  const char* name;
  MergeFunction merge;
};
void PrintTo(const MergeRun& run, std::ostream* stream) { *stream << run.name; }

// One row, one value: what a part has of it.
struct Part {
  double out, lse;
  double max_logit = 0.0, entropy = 0.0, max_weight = 0.0, logit_mean = 0.0, logit_var = 0.0;
  std::int64_t visible = 1, logit_count = 1;

  Partial views() const {
    const auto row = [](const auto& x) { return row_view(&x, {1, 1, 1}); };
    return {.out = keel::view(&out, {1, 1, 1, 1}),
            .lse = row(lse),
            .max_logit = row(max_logit),
            .entropy = row(entropy),
            .max_weight = row(max_weight),
            .logit_mean = row(logit_mean),
            .logit_var = row(logit_var),
            .visible = row(visible),
            .logit_count = row(logit_count)};
  }
  MutableTensorView out_view() { return keel::view(&out, {1, 1, 1, 1}); }
  Outputs outputs() {
    const auto row = [](auto& x) { return row_view(&x, {1, 1, 1}); };
    return {.lse = row(lse),
            .max_logit = row(max_logit),
            .entropy = row(entropy),
            .max_weight = row(max_weight),
            .logit_mean = row(logit_mean),
            .logit_var = row(logit_var),
            .visible = row(visible),
            .logit_count = row(logit_count)};
  }
};

class Merge : public testing::TestWithParam<MergeRun> {
 protected:
  static void merge(std::span<const Partial> parts, const MutableTensorView& out, const Outputs& outputs = {}) {
    GetParam().merge(parts, out, outputs);
  }
  static Part merged(const std::vector<Part>& list) {
    std::vector<Partial> parts;
    for (const Part& part : list) parts.push_back(part.views());
    Part result{7.0, 7.0, 7.0, 7.0, 7.0, 7.0, 7.0, 7, 7};
    merge(parts, result.out_view(), result.outputs());
    return result;
  }
};

TEST_P(Merge, WeightsByTheExponentialOfLse) {
  const Part r = merged({{2.0, std::log(3.0)}, {-1.0, std::log(1.0)}, {4.0, std::log(6.0)}});
  EXPECT_NEAR(r.out, (3.0 * 2.0 - 1.0 + 6.0 * 4.0) / 10.0, 1e-15);
  EXPECT_NEAR(r.lse, std::log(10.0), 1e-15);
}

TEST_P(Merge, OfOnePartIsThatPart) {
  const Part r = merged({{2.5, -3.0, 0.5, 0.25, 0.75, -1.0, 2.0, 4, 3}});
  EXPECT_EQ(r.out, 2.5);
  EXPECT_EQ(r.lse, -3.0);
  EXPECT_EQ(r.max_logit, 0.5);
  EXPECT_EQ(r.entropy, 0.25);
  EXPECT_EQ(r.max_weight, 0.75);
  EXPECT_EQ(r.logit_mean, -1.0);
  EXPECT_EQ(r.logit_var, 2.0);
  EXPECT_EQ(r.visible, 4);
  EXPECT_EQ(r.logit_count, 3);
}

TEST_P(Merge, IgnoresAPartThatSawNoKeyWhateverItHolds) {
  for (const double x : {0.0, std::nan(""), HUGE_VAL}) {
    const Part r = merged({{x, -INFINITY, x, x, x, x, x, 5, 5}, {2.0, 1.0, 3.0, 0.5, 0.25, 4.0, 6.0, 2, 1}});
    EXPECT_EQ(r.out, 2.0);
    EXPECT_EQ(r.lse, 1.0);
    EXPECT_EQ(r.max_logit, 3.0);
    EXPECT_EQ(r.entropy, 0.5);
    EXPECT_EQ(r.max_weight, 0.25);
    EXPECT_EQ(r.logit_mean, 4.0);
    EXPECT_EQ(r.logit_var, 6.0);
    EXPECT_EQ(r.visible, 2);
    EXPECT_EQ(r.logit_count, 1);
  }
}

TEST_P(Merge, OfPartsThatSawNoKeyIsAFullyMaskedRow) {
  const Part r = merged({{1.0, -INFINITY}, {2.0, -INFINITY}});
  EXPECT_EQ(r.out, 0.0);
  EXPECT_EQ(r.lse, -INFINITY);
  EXPECT_EQ(r.max_logit, -INFINITY);
  EXPECT_EQ(r.entropy, 0.0);
  EXPECT_EQ(r.max_weight, 0.0);
  EXPECT_EQ(r.logit_mean, 0.0);
  EXPECT_EQ(r.logit_var, 0.0);
  EXPECT_EQ(r.visible, 0);
  EXPECT_EQ(r.logit_count, 0);
}

TEST_P(Merge, KeepsNan) {
  for (const double lse : {std::nan(""), HUGE_VAL}) {  // of +inf the weights are not known
    const Part by_lse = merged({{1.0, lse}, {2.0, 1.0}});
    EXPECT_TRUE(std::isnan(by_lse.out));
    EXPECT_TRUE(std::isnan(by_lse.lse));
    EXPECT_TRUE(std::isnan(by_lse.entropy));
    EXPECT_TRUE(std::isnan(by_lse.max_weight));
    EXPECT_EQ(by_lse.visible, 2);
  }
  const Part by_out = merged({{NAN, 0.0}, {2.0, 1.0}});
  EXPECT_TRUE(std::isnan(by_out.out));
  EXPECT_FALSE(std::isnan(by_out.lse));
  const Part alone = merged({{1.0, NAN}, {2.0, -INFINITY}});
  EXPECT_TRUE(std::isnan(alone.out));
  EXPECT_TRUE(std::isnan(alone.lse));
  for (const bool first : {true, false}) {  // of statistics, wherever it stands, however little it weighs
    const Part nan{1.0, -2000.0, NAN, NAN, NAN, NAN, NAN, 1, first ? 1 : 0},
        plain{1.0, 0.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1};
    const Part r = first ? merged({nan, plain}) : merged({plain, nan});
    EXPECT_TRUE(std::isnan(r.max_logit));
    EXPECT_TRUE(std::isnan(r.entropy));
    EXPECT_TRUE(std::isnan(r.max_weight));
    EXPECT_TRUE(std::isnan(r.logit_mean));
    EXPECT_TRUE(std::isnan(r.logit_var));
  }
}

TEST_P(Merge, DoesNotOverflow) {
  const Part r = merged({{1.0, 5000.0}, {3.0, 5000.0}, {100.0, -5000.0}});
  EXPECT_EQ(r.out, 2.0);
  EXPECT_EQ(r.lse, 5000.0 + std::log(2.0));
}

TEST_P(Merge, EntropyAndMaxWeightAreThoseOfTheWeightsTogether) {
  // weights 1/2 · {3/4, 1/4}, 1/3 · {1}, 1/6 · {1/2, 1/2}
  const auto entropy_of = [](std::initializer_list<double> p) {
    double sum = 0.0;
    for (const double x : p) sum -= x * std::log(x);
    return sum;
  };
  const Part r = merged({{0.0, std::log(3.0), 0.0, entropy_of({0.75, 0.25}), 0.75},
                         {0.0, std::log(2.0), 0.0, 0.0, 1.0},
                         {0.0, 0.0, 0.0, entropy_of({0.5, 0.5}), 0.5}});
  EXPECT_NEAR(r.entropy, entropy_of({0.375, 0.125, 1.0 / 3.0, 1.0 / 12.0, 1.0 / 12.0}), 1e-15);
  EXPECT_NEAR(r.max_weight, 0.375, 1e-15);
}

TEST_P(Merge, MomentsAreWeightedByTheNumberOfScores) {
  // {1, 3} and four masked by a number; a sink alone; {2, 5, 8}; nothing but such masks
  const Part r = merged({{0.0, 0.0, 0.0, 0.0, 0.0, 2.0, 1.0, 6, 2},
                         {0.0, 9.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0, 0},
                         {0.0, 5.0, 0.0, 0.0, 0.0, 5.0, 6.0, 3, 3},
                         {0.0, -1e30, -1e30, 0.0, 0.0, 0.0, 0.0, 5, 0}});
  EXPECT_NEAR(r.logit_mean, 3.8, 1e-15);
  EXPECT_NEAR(r.logit_var, (2.8 * 2.8 + 0.8 * 0.8 + 1.8 * 1.8 + 1.2 * 1.2 + 4.2 * 4.2) / 5.0, 1e-14);
  EXPECT_EQ(r.visible, 14);
  EXPECT_EQ(r.logit_count, 5);
  const auto moments = [](double mean, double var, std::int64_t count) {
    return Part{.out = 0.0, .lse = 0.0, .logit_mean = mean, .logit_var = var, .logit_count = count};
  };
  const Part equal = merged({moments(1e15 + 0.3, 0.0, 3), moments(1e15 + 0.3, 0.0, 7)});
  EXPECT_EQ(equal.logit_mean, 1e15 + 0.3);
  EXPECT_EQ(equal.logit_var, 0.0);
  const Part infinite = merged({moments(1.0, 0.0, 3), moments(-INFINITY, NAN, 7)});
  EXPECT_EQ(infinite.logit_mean, -INFINITY);
  EXPECT_TRUE(std::isnan(infinite.logit_var));
}

// lse cannot hold log 2 beside −1e30; the weights do not come from it.
TEST_P(Merge, WeightsDoNotNeedAnLseThatHoldsThem) {
  const Part r = merged({{1.0, -1e30, 0.0, 0.0, 1.0}, {3.0, -1e30, 0.0, 0.0, 1.0}});
  EXPECT_EQ(r.out, 2.0);
  EXPECT_EQ(r.max_weight, 0.5);
  EXPECT_NEAR(r.entropy, std::log(2.0), 1e-15);
}

TEST_P(Merge, WorksWithoutLse) {
  const double out[] = {1.0, 5.0}, lse[] = {0.0, std::log(3.0)};
  double result = 0.0;
  const Partial parts[] = {{.out = keel::view(&out[0], {1, 1, 1, 1}), .lse = row_view(&lse[0], {1, 1, 1})},
                           {.out = keel::view(&out[1], {1, 1, 1, 1}), .lse = row_view(&lse[1], {1, 1, 1})}};
  merge(parts, keel::view(&result, {1, 1, 1, 1}));
  EXPECT_NEAR(result, 4.0, 1e-15);
}

TEST_P(Merge, TakesPartsInFloatForSixteenBitResultsAndTheOtherWayRound) {
  const float out[] = {1.0f, 2.0f}, lse[] = {0.0f, 0.0f};
  BFloat16 result, narrow{0x4000};  // 2
  const Partial parts[] = {{.out = keel::view(&out[0], {1, 1, 1, 1}), .lse = row_view(&lse[0], {1, 1, 1})},
                           {.out = keel::view(&narrow, {1, 1, 1, 1}), .lse = row_view(&lse[1], {1, 1, 1})}};
  merge(parts, keel::view(&result, {1, 1, 1, 1}));
  EXPECT_EQ(to_float(result), 1.5f);
  float wide = 0.0f;
  merge(parts, keel::view(&wide, {1, 1, 1, 1}));
  EXPECT_EQ(wide, 1.5f);
}

TEST_P(Merge, InPlaceOfAPartGivesTheSame) {
  const std::vector<Part> list = {{2.0, 0.5, 0.4, 0.3, 0.2, 0.1, 1.5, 3, 2},
                                  {1.0, 0.25, 0.6, 0.1, 0.3, 0.7, 2.5, 5, 4}};
  const Part expected = merged(list);
  for (const std::size_t place : {0, 1}) {
    std::vector<Part> parts = list;
    const Partial views[] = {parts[0].views(), parts[1].views()};
    merge(views, parts[place].out_view(), parts[place].outputs());
    const Part& r = parts[place];
    EXPECT_EQ(r.out, expected.out);
    EXPECT_EQ(r.lse, expected.lse);
    EXPECT_EQ(r.max_logit, expected.max_logit);
    EXPECT_EQ(r.entropy, expected.entropy);
    EXPECT_EQ(r.max_weight, expected.max_weight);
    EXPECT_EQ(r.logit_mean, expected.logit_mean);
    EXPECT_EQ(r.logit_var, expected.logit_var);
    EXPECT_EQ(r.visible, expected.visible);
    EXPECT_EQ(r.logit_count, expected.logit_count);
  }
}

// What attend() gives, with memory of the dtypes that merge() wants.
struct Merged {
  Results r;
  std::vector<std::int64_t> visible, logit_count;

  explicit Merged(Results results) : r(std::move(results)) {
    visible.assign(r.visible.values.begin(), r.visible.values.end());
    logit_count.assign(r.logit_count.values.begin(), r.logit_count.values.end());
  }
  Partial views() const {
    return {.out = view(r.out),
            .lse = rows(r.lse),
            .max_logit = rows(r.max_logit),
            .entropy = rows(r.entropy),
            .max_weight = rows(r.max_weight),
            .logit_mean = rows(r.logit_mean),
            .logit_var = rows(r.logit_var),
            .visible = row_view(visible.data(), rows(r.lse).shape),
            .logit_count = row_view(logit_count.data(), rows(r.lse).shape)};
  }
  Outputs outputs() {
    return {.lse = r.lse.rows(),
            .max_logit = r.max_logit.rows(),
            .entropy = r.entropy.rows(),
            .max_weight = r.max_weight.rows(),
            .logit_mean = r.logit_mean.rows(),
            .logit_var = r.logit_var.rows(),
            .visible = row_view(visible.data(), rows(r.lse).shape),
            .logit_count = row_view(logit_count.data(), rows(r.lse).shape)};
  }
};

// Keys split by a mask, some rows of a part and one of all parts seeing nothing; the first part has the sinks. Every
// eleventh key is masked by a number, which leaves it out of the moments.
TEST_P(Merge, OfManyPartsIsTheWholeWithEveryStatistic) {
  const std::int64_t keys = 50, parts = 7;
  const Inputs x = random_inputs(2, 2, 1, 6, keys, 4, 3);
  const std::vector<double> sinks = {0.5, -0.3};
  for (const bool sinking : {false, true}) {
    const auto seen = [&](std::int64_t h, std::int64_t i, std::int64_t j) { return i != 4 && (j + h) % 3 != 1; };
    Dense low({1, 1, 1, keys});
    for (std::int64_t j = 0; j < keys; j += 11) low.at(0, 0, 0, j) = -1e30;
    const auto options = [&](const Mask& mask, bool sink) {
      Options o{.mask = mask.view(), .bias = view(low)};
      if (sink) o.sinks = heads(sinks);
      return o;
    };
    const Mask all({1, 2, 6, keys}, [&](auto, auto h, auto i, auto j) { return seen(h, i, j); });
    const Results whole = attend(oracle, x, options(all, sinking));
    std::vector<Merged> results;
    for (std::int64_t p = 0; p < parts; ++p) {
      const Mask mask({1, 2, 6, keys}, [&](auto, auto h, auto i, auto j) {
        return seen(h, i, j) && (j * 5 / 7) % parts == p && (p == 0 || i % parts != p);
      });
      results.emplace_back(attend(oracle, x, options(mask, sinking && p == 0)));
    }
    // what the masks of single rows left out
    const Mask rest({1, 2, 6, keys}, [&](auto, auto h, auto i, auto j) {
      const std::int64_t p = (j * 5 / 7) % parts;
      return seen(h, i, j) && p != 0 && i % parts == p;
    });
    results.emplace_back(attend(oracle, x, options(rest, false)));
    std::vector<Partial> views;
    for (const Merged& part : results) views.push_back(part.views());
    Merged got(whole);
    for (Dense* y : {&got.r.out, &got.r.lse, &got.r.max_logit, &got.r.entropy, &got.r.max_weight, &got.r.logit_mean,
                     &got.r.logit_var}) {
      y->values.assign(y->values.size(), 7.0);
    }
    merge(views, got.r.out.tensor(), got.outputs());
    got.r.visible.values.assign(got.visible.begin(), got.visible.end());
    got.r.logit_count.values.assign(got.logit_count.begin(), got.logit_count.end());
    expect_same(got.r, whole);
  }
}

const auto kMergers = testing::Values(
    MergeRun{"Oracle", [](auto parts, auto& out,
                          auto& outputs) { reference::merge(make_merge_problem(parts, out, outputs, 1)); }},
    MergeRun{"Library", [](auto parts, auto& out, auto& outputs) { keel::merge(parts, out, outputs); }});
INSTANTIATE_TEST_SUITE_P(Both, Merge, kMergers, [](const auto& run) { return std::string(run.param.name); });

}  // namespace
}  // namespace keel::semantics
