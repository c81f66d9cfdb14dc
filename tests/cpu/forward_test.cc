// The streaming forward kernel against the oracle, on every SIMD target that this machine has.
#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "conformance/expect.h"
#include "conformance/generator.h"
#include "conformance/random.h"
#include "conformance/table.h"
#include "core/element.h"
#include "cpu/forced.h"
#include "cpu/on_target.h"

namespace keel {
namespace {

using conformance::expect_matches_oracle;
using conformance::Instance;

class Forward : public OnTarget {};

// On every target: as planned; with small tiles, which cross every boundary (several blocks a chunk, several chunks a
// row), whole and split. One test for all, since what the oracle says takes longer than the kernels.
void expect_on_every_target(const Instance& instance) {
  for (const std::int64_t target : machine().target_bits) {
    SCOPED_TRACE(hwy::TargetName(target));
    expect_matches_oracle(instance, forced_forward({.target = target}));
    expect_matches_oracle(instance, forced_forward({.target = target, .tiles = {12, 64, 128}, .split_keys = false}));
    expect_matches_oracle(instance, forced_forward({.target = target, .tiles = {24, 64, 64}, .split_keys = true}));
  }
}

TEST(ForwardOnEveryTarget, TableMatchesTheOracle) {
  for (const auto& c : conformance::table()) expect_on_every_target(Instance(c));
}

TEST(ForwardOnEveryTarget, RandomProblemsMatchTheOracle) {
  for (std::uint64_t seed = 0; seed < random_problems(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    expect_on_every_target(Instance(conformance::random_case(seed)));
  }
}

// Every statistic under biases that mask, in all but name or by −inf.
TEST(ForwardOnEveryTarget, RandomProblemsWithMaskingBiasesMatchTheOracle) {
  for (std::uint64_t seed = 0; seed < random_problems(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    expect_on_every_target(Instance(conformance::random_case_with_masking_bias(seed)));
  }
}

template <class T>
T from_number(double x) {
  T value;
  store(&value, dtype_of<T>, 0, x);
  return value;
}

template <class T>
double number(T x) {
  return load(&x, dtype_of<T>, 0);
}

// Sums over very many keys: all weights equal, all values 1.
template <class T>
double worst_of_flat_softmax(std::int64_t target) {
  constexpr std::int64_t n_k = 262144, d = 4;
  std::vector<T> q(d), k(n_k * d), v(n_k * d, from_number<T>(1)), out(d);
  run_forced(view(q.data(), {1, 1, 1, d}), view(k.data(), {1, 1, n_k, d}), view(v.data(), {1, 1, n_k, d}),
             view(out.data(), {1, 1, 1, d}), {}, {}, {.target = target});
  double worst = 0;
  for (const T x : out) worst = std::max(worst, std::fabs(number(x) - 1.0));
  return worst;
}

TEST_P(Forward, FlatSoftmaxOverManyKeysIsOne) {
  EXPECT_LE(worst_of_flat_softmax<float>(target()), 1e-5);
  EXPECT_LE(worst_of_flat_softmax<double>(target()), 1e-12);
  EXPECT_EQ(worst_of_flat_softmax<Float16>(target()), 0.0);
  EXPECT_EQ(worst_of_flat_softmax<BFloat16>(target()), 0.0);
}

// The sum of very many weights keeps its digits: all are 1/3.
template <class T>
double worst_of_flat_key_sums(std::int64_t target) {
  constexpr std::int64_t n_q = 200'000, n_k = 3, d = 4;
  std::vector<T> q(n_q * d), k(n_k * d, T{1}), v(n_k * d), out(n_q * d), sums(n_k);
  run_forced(view(q.data(), {1, 1, n_q, d}), view(k.data(), {1, 1, n_k, d}), view(v.data(), {1, 1, n_k, d}),
             view(out.data(), {1, 1, n_q, d}), {}, {.key_sums = row_view(sums.data(), {1, 1, n_k})},
             {.target = target});
  double worst = 0;
  for (const T x : sums) worst = std::max(worst, std::fabs(static_cast<double>(x) * n_k / n_q - 1.0));
  return worst;
}

TEST_P(Forward, FlatKeySumsOverManyRowsKeepTheirDigits) {
  EXPECT_LE(worst_of_flat_key_sums<float>(target()), 2e-7);
  EXPECT_LE(worst_of_flat_key_sums<double>(target()), 1e-14);
}

// Equal weights over equal values: the worst case of a sum, as every addition of a chain may round the same way. A
// chain of m additions is then off by up to m/2 units of roundoff; the sums of blocks and of chunks are such chains,
// too.
double worst_of_equal_values(std::int64_t target, std::int64_t n_k, Tiles tiles = {}) {
  constexpr std::int64_t d = 64;
  conformance::Generator random(11);
  double worst = 0;
  for (int round = 0; round < 10; ++round) {
    std::vector<float> q(1), k(static_cast<std::size_t>(n_k)), v(d), out(d);
    for (float& x : v) x = static_cast<float>(random.uniform(1, 2));
    const TensorView values{v.data(), DType::f32, {1, 1, n_k, d}, {0, 0, 0, 1}};
    run_forced(view(q.data(), {1, 1, 1, 1}), view(k.data(), {1, 1, n_k, 1}), values, view(out.data(), {1, 1, 1, d}), {},
               {}, {.target = target, .tiles = tiles});
    for (std::size_t c = 0; c < d; ++c) worst = std::max(worst, std::fabs(out[c] / double{v[c]} - 1.0));
  }
  return worst;
}

TEST_P(Forward, EqualValuesAreOffByHalfAChainOfAdditions) {
  constexpr double kRoundoff = 0x1p-24, kKeyBlock = 512, kBlocksAChunk = 8;
  for (const std::int64_t n_k : {64, 512, 4096, 16384}) {
    const double chunks = std::ceil(static_cast<double>(n_k) / (kKeyBlock * kBlocksAChunk));
    const double chain = std::min(static_cast<double>(n_k), kKeyBlock) + kBlocksAChunk + chunks;
    EXPECT_LE(worst_of_equal_values(target(), n_k), (chain / 2 + 2) * kRoundoff) << n_k;  // 2: division and rounding
  }
  EXPECT_GT(worst_of_equal_values(target(), 4096, {.key_block = 4096, .key_chunk = 4096}), kKeyBlock / 2 * kRoundoff)
      << "a chain that is longer than allowed is not seen";
}

// A bias or a mask alone has a way of its own, which must not be told from the way that takes both: what else is given
// hides nothing. Biases are such that products with log₂e overflow, masked as −inf or by the lowest float, and NaN.
template <class T>
void expect_a_bias_or_mask_alone_has_the_bits_of_both(std::int64_t target) {
  constexpr std::int64_t n = 45, d = 8;
  constexpr float most = 3.3895e38f;  // the largest bf16
  std::vector<T> q(n * d), k(n * d), v(n * d), alone(n * d), both(n * d), bias(n * n), zeros(n * n);
  std::array<bool, n * n> mask, ones;
  ones.fill(true);
  std::vector<std::int64_t> seen_alone(n), seen_both(n);
  conformance::Generator random(5);
  for (auto* x : {&q, &k, &v, &bias}) {
    for (T& value : *x) value = from_number<T>(random.normal());
  }
  const float odd[] = {most, -most, 0.8f * most, -0.8f * most, -INFINITY, INFINITY, NAN};
  for (std::int64_t i = 0; i < 40; ++i) bias[i * n + i] = from_number<T>(odd[i % 7]);
  for (std::int64_t j = 0; j < n; ++j) {
    bias[41 * n + j] = from_number<T>(-most);
    bias[42 * n + j] = from_number<T>(-INFINITY);
    if (j != 44) bias[44 * n + j] = from_number<T>(j % 2 == 0 ? -INFINITY : -0.5f * most);
  }
  for (bool& x : mask) x = random.uniform() < 0.7;

  const auto tensor = [](auto& x) { return view(x.data(), {1, 1, n, d}); };
  const auto square = [](auto& x) { return view(x.data(), {1, 1, n, n}); };
  const auto expect_equal = [&](Options one, Options two) {
    for (const Window window : {Window{}, Window{.left = 20, .right = 0}, Window{.left = 21, .right = 7}}) {
      one.window = two.window = window;
      run_forced(tensor(q), tensor(k), tensor(v), tensor(alone), one,
                 {.visible = row_view(seen_alone.data(), {1, 1, n})}, {.target = target});
      run_forced(tensor(q), tensor(k), tensor(v), tensor(both), two, {.visible = row_view(seen_both.data(), {1, 1, n})},
                 {.target = target});
      EXPECT_EQ(seen_alone, seen_both);
      for (std::size_t x = 0; x < alone.size(); ++x) {
        if (std::isnan(number(both[x]))) {
          EXPECT_TRUE(std::isnan(number(alone[x]))) << "row " << x / d;
        } else {
          EXPECT_EQ(number(alone[x]), number(both[x])) << "row " << x / d;
        }
      }
    }
  };
  Options one, two;
  one.bias = two.bias = square(bias);
  two.mask = square(ones);
  expect_equal(one, two);
  // What the last window left of some rows:
  EXPECT_FALSE(std::isnan(number(alone[41 * d])));  // nothing but the lowest number: equal weights
  EXPECT_EQ(seen_alone[42], 0);
  EXPECT_EQ(number(alone[44 * d]), number(v[44 * d]));                                // one key beside such
  EXPECT_TRUE(std::isnan(number(alone[5 * d])) && std::isnan(number(alone[6 * d])));  // +inf, NaN
  one = two = {};
  one.mask = two.mask = square(mask);
  two.bias = square(zeros);
  expect_equal(one, two);
}

TEST_P(Forward, ABiasOrMaskAloneHasTheBitsOfBoth) {
  expect_a_bias_or_mask_alone_has_the_bits_of_both<float>(target());
  expect_a_bias_or_mask_alone_has_the_bits_of_both<double>(target());
  expect_a_bias_or_mask_alone_has_the_bits_of_both<BFloat16>(target());
}

// Of all statistics of one call, and of a call for each.
TEST(ForwardOnEveryTarget, AStatisticRequestedAloneHasTheSameBits) {
  conformance::Case c;
  c.name = "statistics";
  c.batch = 2, c.q_heads = 4, c.kv_heads = 2;
  c.n_q = 37, c.n_k = 150;
  c.d_k = 24, c.d_v = 16;
  c.causal = Causal::bottom_right;
  c.statistics = c.key_sums = true;
  const Instance instance(c);
  using Memory = conformance::ForwardMemory;
  struct Statistic {
    const char* name;
    conformance::Array Memory::*array;
    void (*request)(Outputs& one, const Outputs& all);
  };
  const Statistic statistics[] = {
      {"lse", &Memory::lse, [](Outputs& one, const Outputs& all) { one.lse = all.lse; }},
      {"max_logit", &Memory::max_logit, [](Outputs& one, const Outputs& all) { one.max_logit = all.max_logit; }},
      {"entropy", &Memory::entropy, [](Outputs& one, const Outputs& all) { one.entropy = all.entropy; }},
      {"max_weight", &Memory::max_weight, [](Outputs& one, const Outputs& all) { one.max_weight = all.max_weight; }},
      {"logit_mean", &Memory::logit_mean, [](Outputs& one, const Outputs& all) { one.logit_mean = all.logit_mean; }},
      {"logit_var", &Memory::logit_var, [](Outputs& one, const Outputs& all) { one.logit_var = all.logit_var; }},
      {"visible", &Memory::visible, [](Outputs& one, const Outputs& all) { one.visible = all.visible; }},
      {"logit_count", &Memory::logit_count,
       [](Outputs& one, const Outputs& all) { one.logit_count = all.logit_count; }},
      {"key_sums", &Memory::key_sums, [](Outputs& one, const Outputs& all) { one.key_sums = all.key_sums; }},
  };
  for (const std::int64_t target : machine().target_bits) {
    SCOPED_TRACE(hwy::TargetName(target));
    const auto run = [&](const Memory& memory, const Outputs& outputs) {
      run_forced(instance.q(), instance.k(), instance.v(), memory.out_view(), instance.options(), outputs,
                 {.target = target});
    };
    const Memory all = instance.forward_memory();
    run(all, all.outputs());
    for (const Statistic& statistic : statistics) {
      const Memory one = instance.forward_memory();
      Outputs outputs;
      statistic.request(outputs, one.outputs());
      run(one, outputs);
      EXPECT_TRUE((one.*statistic.array).contents() == (all.*statistic.array).contents()) << statistic.name;
    }
  }
}

// What Hugging Face's models mask with: the lowest float, over several blocks of keys before the first that counts.
template <class T>
void expect_the_statistics_of_a_mask(std::int64_t target, bool sinks) {
  constexpr std::int64_t n_q = 3, n_k = 1500, padding = 1100, d = 8;
  std::vector<T> q(n_q * d), k(n_k * d), v(n_k * d), out(n_q * d);
  conformance::Generator random(7);
  for (auto* x : {&q, &k, &v}) {
    for (T& value : *x) value = from_number<T>(random.normal());
  }
  std::vector<float> bias(n_k), sink = {0.5f};
  std::fill_n(bias.begin(), padding, std::numeric_limits<float>::lowest());
  std::array<bool, n_k> mask{};
  std::fill(mask.begin() + padding, mask.end(), true);
  std::array<std::array<float, n_q>, 6> got, want;
  const auto run = [&](Options options, auto& rows) {
    if (sinks) options.sinks = head_view(sink.data(), 1);
    const auto row = [&](std::size_t i) { return row_view(rows[i].data(), {1, 1, n_q}); };
    run_forced(view(q.data(), {1, 1, n_q, d}), view(k.data(), {1, 1, n_k, d}), view(v.data(), {1, 1, n_k, d}),
               view(out.data(), {1, 1, n_q, d}), options,
               {.lse = row(0),
                .max_logit = row(1),
                .entropy = row(2),
                .max_weight = row(3),
                .logit_mean = row(4),
                .logit_var = row(5)},
               {.target = target});
  };
  Options by_bias, by_mask;
  by_bias.bias = view(bias.data(), {1, 1, 1, n_k});
  by_mask.mask = view(mask.data(), {1, 1, 1, n_k});
  run(by_bias, got);
  run(by_mask, want);
  for (std::size_t s = 0; s < got.size(); ++s) {
    for (std::size_t i = 0; i < n_q; ++i) {
      EXPECT_NEAR(got[s][i], want[s][i], 2e-6 * (1 + std::fabs(want[s][i]))) << "statistic " << s << ", row " << i;
    }
  }
}

TEST_P(Forward, TheLowestFloatAsABiasLeavesTheStatisticsOfAMask) {
  for (const bool sinks : {false, true}) {
    expect_the_statistics_of_a_mask<float>(target(), sinks);
    expect_the_statistics_of_a_mask<Float16>(target(), sinks);
    expect_the_statistics_of_a_mask<BFloat16>(target(), sinks);
  }
}

// e^-90 is below the smallest normal float. Where such a number would take long, it must be 0. Elsewhere AVX-512 keeps
// it; other targets do not have such numbers.
TEST_P(Forward, WeightsThatWouldTakeLongAreZero) {
  std::vector<float> q = {1}, k = {0, -90}, v = {0, 1e38f}, out(1);
  const auto tensor = [](std::vector<float>& x) { return view(x.data(), {1, 1, std::ssize(x), 1}); };
  for (const bool slow : {true, false}) {
    Machine with = machine();
    with.slow_denormals = slow;
    const Problem problem = make_problem(tensor(q), tensor(k), tensor(v), tensor(out), {.scale = 1.0}, {});
    make_plan(problem, backends(), {.resources = {.machine = &with}, .forced = {.target = target()}}).execute();
    if (slow || target() != HWY_AVX3) {
      EXPECT_EQ(out[0], 0.0f);
    } else {
      EXPECT_NEAR(out[0], std::exp(-90.0) * 1e38, 1e-5);
    }
  }
}

KEEL_ON_EVERY_TARGET(Forward);

}  // namespace
}  // namespace keel
