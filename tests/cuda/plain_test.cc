// The plain CUDA kernels against the oracle, compiled for the CPU: with one lane, and with several in lockstep.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "conformance/expect.h"
#include "conformance/generator.h"
#include "conformance/merge.h"
#include "conformance/random.h"
#include "conformance/slices.h"
#include "conformance/table.h"
#include "cpu/on_target.h"
#include "cuda/host_run.h"

namespace keel::cuda {
namespace {

using conformance::expect_gradients_match_oracle;
using conformance::expect_matches_oracle;
using conformance::MergeInstance;

// What only the CPU serves is refused.
struct Instance : conformance::Instance {
  explicit Instance(const conformance::Case& c) : conformance::Instance(for_any_backend(c)) {}
};

template <int kLanes>
void expect_plain_matches_oracle(const Instance& instance) {
  SCOPED_TRACE(std::to_string(kLanes) + " lanes");
  expect_matches_oracle(instance, plain_attention<kLanes>);
  expect_gradients_match_oracle(instance, plain_attention_backward<kLanes>);
}

TEST(PlainKernels, TableMatchesTheOracle) {
  for (const auto& c : conformance::table()) expect_plain_matches_oracle<1>(Instance(c));
}

// The smaller cases of it, as lanes take turns.
TEST(PlainKernels, TableMatchesTheOracleInLockstep) {
  int small = 0;
  for (const auto& c : conformance::table()) {
    if (c.batch * c.q_heads * c.n_q * c.n_k > 20'000) continue;
    expect_plain_matches_oracle<4>(Instance(c));
    ++small;
  }
  EXPECT_GT(small, std::ssize(conformance::table()) * 3 / 4);
}

TEST(PlainKernels, RandomProblemsMatchTheOracle) {
  for (std::uint64_t seed = 0; seed < random_problems(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const Instance instance(conformance::random_case(seed));
    expect_plain_matches_oracle<1>(instance);
    expect_plain_matches_oracle<4>(instance);
  }
}

TEST(PlainKernels, RandomProblemsMatchTheOracleInWholeWarps) {
  for (std::uint64_t seed = 0; seed < random_problems(60); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    expect_plain_matches_oracle<32>(Instance(conformance::random_case(seed, 20'000)));
  }
}

TEST(PlainKernels, RandomProblemsWithMaskingBiasesMatchTheOracle) {
  for (std::uint64_t seed = 0; seed < random_problems(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const Instance instance(conformance::random_case_with_masking_bias(seed));
    expect_plain_matches_oracle<1>(instance);
    expect_plain_matches_oracle<4>(instance);
  }
}

TEST(PlainKernels, RandomProblemsInSlicesMatchTheOracle) {
  for (std::uint64_t seed = 0; seed < random_problems(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const Instance instance(conformance::random_case(seed, 50'000));
    if (!conformance::lse_tells_weights(instance.description())) continue;  // which is what slices are merged by
    expect_matches_oracle(
        instance, conformance::sliced_attention(seed, plain_attention<4>, [](auto&&... x) { plain_merge<4>(x...); }));
    expect_gradients_match_oracle(instance, conformance::sliced_backward(seed, plain_attention_backward<4>));
  }
}

template <int kLanes>
void expect_merge_matches_oracle(std::uint64_t seed) {
  const conformance::ExpectedMerge expected = conformance::compute_expected(MergeInstance(seed).problem());
  const MergeInstance call(seed);
  plain_merge<kLanes>(call.problem());
  EXPECT_EQ(merge_mismatch(call.problem(), expected), "") << kLanes << " lanes";
  EXPECT_EQ(call.outside_writes(), "") << kLanes << " lanes";
}

TEST(PlainMerge, RandomPartsMatchTheOracle) {
  for (std::uint64_t seed = 0; seed < random_problems(400); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    expect_merge_matches_oracle<1>(seed);
    expect_merge_matches_oracle<4>(seed);
    if (testing::Test::HasFailure()) return;
  }
}

// More than arguments of a kernel have room for, and than a warp has lanes.
TEST(PlainMerge, ManyPartsMatchTheOracle) {
  constexpr std::int64_t count = 70, rows = 5, d = 37;
  std::vector<float> values(count * rows * d), lse(count * rows), out(rows * d), lse_out(rows);
  std::vector<double> want(rows * d), lse_want(rows);
  conformance::Generator random(3);
  for (float& x : values) x = static_cast<float>(random.normal());
  for (float& x : lse) x = static_cast<float>(4.0 * random.normal());
  std::vector<Partial> parts(count);
  for (std::int64_t p = 0; p < count; ++p) {
    const float* const part = values.data() + p * rows * d;
    const float* const part_lse = lse.data() + p * rows;
    parts[static_cast<std::size_t>(p)] = {.out = view(part, {1, 1, rows, d}), .lse = row_view(part_lse, {1, 1, rows})};
    for (std::int64_t i = 0; i < rows; ++i) lse_want[i] += std::exp(double{part_lse[i]});
  }
  for (double& x : lse_want) x = std::log(x);
  for (std::int64_t at = 0; at < count * rows * d; ++at) {
    const std::int64_t row = at / d, i = row % rows;
    want[i * d + at % d] += std::exp(lse[row] - lse_want[i]) * values[at];
  }
  plain_merge<32>(parts, view(out.data(), {1, 1, rows, d}), {.lse = row_view(lse_out.data(), {1, 1, rows})});
  for (std::size_t at = 0; at < out.size(); ++at) EXPECT_NEAR(out[at], want[at], 1e-6) << at;
  for (std::size_t i = 0; i < rows; ++i) EXPECT_NEAR(lse_out[i], lse_want[i], 1e-6) << i;
}

// ---- Sums over very many terms keep their digits: one lane adds up all of them, a warp a 32nd each.

// A chain of m additions is off by up to m/2 units of roundoff.
constexpr std::int64_t kMany = 200'000;
constexpr double kManyInChains = LongSum::kShort + static_cast<double>(kMany) / LongSum::kShort;

// Equal weights over equal values: the worst case of a sum, as every addition of a chain may round the same way.
template <class T>
double worst_of_equal_values() {
  constexpr std::int64_t d = 40;
  std::vector<T> q(1), k(kMany), v(d), out(d);
  conformance::Generator random(11);
  for (T& x : v) x = static_cast<T>(random.uniform(1, 2));
  const TensorView values{v.data(), dtype_of<T>, {1, 1, kMany, d}, {0, 0, 0, 1}};
  plain_attention<1>(view(q.data(), {1, 1, 1, 1}), view(k.data(), {1, 1, kMany, 1}), values,
                     view(out.data(), {1, 1, 1, d}), {}, {});
  double worst = 0;
  for (std::size_t c = 0; c < d; ++c) worst = std::max(worst, std::fabs(out[c] / double{v[c]} - 1.0));
  return worst;
}

TEST(PlainKernels, EqualValuesOverManyKeysAreOffByHalfAShortChain) {
  constexpr double kOthers = 3;  // the weight's own roundings, and the result's
  EXPECT_LE(worst_of_equal_values<float>(), (LongSum::kShort / 2 + kOthers) * 0x1p-24);
  EXPECT_LE(worst_of_equal_values<double>(), (kManyInChains / 2 + kOthers) * 0x1p-53);
}

template <class T>
double worst_of_flat_key_sums() {
  constexpr std::int64_t n_q = kMany, n_k = 3, d = 4;
  std::vector<T> q(n_q * d), k(n_k * d, T{1}), v(n_k * d), out(n_q * d), sums(n_k);
  plain_attention<1>(view(q.data(), {1, 1, n_q, d}), view(k.data(), {1, 1, n_k, d}), view(v.data(), {1, 1, n_k, d}),
                     view(out.data(), {1, 1, n_q, d}), {}, {.key_sums = row_view(sums.data(), {1, 1, n_k})});
  double worst = 0;
  for (const T x : sums) worst = std::max(worst, std::fabs(static_cast<double>(x) * n_k / n_q - 1.0));
  return worst;
}

TEST(PlainKernels, FlatKeySumsOverManyRowsKeepTheirDigits) {
  EXPECT_LE(worst_of_flat_key_sums<float>(), 2e-7);
  EXPECT_LE(worst_of_flat_key_sums<double>(), kManyInChains / 2 * 0x1p-53);
}

// A sink that takes nearly all: its gradient must not see how its logit was rounded.
TEST(PlainKernels, LargeSinksHaveExactGradients) {
  constexpr std::int64_t n = 8, d = 8;
  std::vector<float> q(n * d, 0.1f), k(n * d, 0.1f), v(n * d), out(n * d), lse(n), dlse(n, 1.0f), dout(n * d), dsink(1);
  const auto tensor = [](auto& x) { return view(x.data(), {1, 1, n, d}); };
  for (const float logit : {1234.5f, 12345.6f, 100003.0f}) {
    std::vector<float> sink(1, logit);
    Options options;
    options.sinks = head_view(sink.data(), 1);
    plain_attention<4>(tensor(q), tensor(k), tensor(v), tensor(out), options, {.lse = row_view(lse.data(), {1, 1, n})});
    plain_attention_backward<4>({.q = tensor(q),
                                 .k = tensor(k),
                                 .v = tensor(v),
                                 .out = tensor(out),
                                 .lse = row_view(lse.data(), {1, 1, n}),
                                 .dout = tensor(dout),
                                 .dlse = row_view(dlse.data(), {1, 1, n})},
                                {.dsinks = head_view(dsink.data(), 1)}, options);
    EXPECT_NEAR(dsink[0], 8.0f, 1e-5f) << logit;
  }
}

// ---- Elements.

TEST(Elements, RoundToSixteenBitsAsTheLibraryDoes) {
  const auto expect_same = [](double x) {
    Float16 half;
    BFloat16 brain;
    put(half, x);
    put(brain, x);
    ASSERT_EQ(half.bits, to_float16(x).bits) << x;
    ASSERT_EQ(brain.bits, to_bfloat16(x).bits) << x;
  };
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto b = static_cast<std::uint16_t>(bits);
    for (const double x : {double{to_float(Float16{b})}, double{to_float(BFloat16{b})}}) {
      expect_same(x);
      if (!std::isfinite(x)) continue;
      const double next = std::bit_cast<double>(std::bit_cast<std::uint64_t>(x) + 1);
      expect_same(next);
      for (const double half_step : {0x1p-11, 0x1p-8}) {  // ties, and a hair to either side of them
        const double tie = x * (1.0 + half_step);
        expect_same(tie);
        expect_same(std::nextafter(tie, 0.0));
        expect_same(std::nextafter(tie, INFINITY));
      }
      expect_same(x + std::copysign(0x1p-25, x));  // between subnormals of f16
      expect_same(x + std::copysign(0x1p-134, x));
    }
  }
  for (const double x : {65519.9, 65520.0, 3.4e38, 3.39e38, 1e300, 5e-324, 1e-40, 1e-46, 0x1p-1074, -0.0})
    expect_same(x);
}

}  // namespace
}  // namespace keel::cuda
