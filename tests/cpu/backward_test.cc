// The streaming backward kernel against the oracle, on every SIMD target that this machine has.
#include <gtest/gtest.h>
#include <hwy/targets.h>

#include "conformance/differences.h"
#include "conformance/expect.h"
#include "conformance/random.h"
#include "conformance/table.h"
#include "cpu/forced.h"
#include "cpu/on_target.h"

namespace keel {
namespace {

using conformance::expect_gradients_match_oracle;
using conformance::Instance;

class Backward : public OnTarget {};

// On every target: as planned; with small tiles, which cross every boundary (several blocks of rows, several of keys),
// in one task a head and in tasks of their own.
void expect_on_every_target(const Instance& instance) {
  if (!instance.description().gradients) return;
  for (const std::int64_t target : machine().target_bits) {
    SCOPED_TRACE(hwy::TargetName(target));
    expect_gradients_match_oracle(instance, forced_backward({.target = target}));
    expect_gradients_match_oracle(instance,
                                  forced_backward({.target = target, .tiles = {12, 64}, .split_keys = false}));
    expect_gradients_match_oracle(
        instance, forced_backward({.target = target, .tiles = {24, 64}, .split_keys = true, .share_small = true}));
  }
}

TEST(BackwardOnEveryTarget, TableMatchesTheOracle) {
  for (const auto& c : conformance::table()) expect_on_every_target(Instance(c));
}

TEST(BackwardOnEveryTarget, RandomProblemsMatchTheOracle) {
  for (std::uint64_t seed = 0; seed < random_problems(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    expect_on_every_target(Instance(conformance::random_case(seed)));
  }
}

TEST(BackwardOnEveryTarget, RandomProblemsWithMaskingBiasesMatchTheOracle) {
  for (std::uint64_t seed = 0; seed < random_problems(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    expect_on_every_target(Instance(conformance::random_case_with_masking_bias(seed)));
  }
}

// The kernel's own gradients against differences of its own forward pass, in float64.
TEST_P(Backward, MatchesCentralDifferences) {
  const auto forward = forced_forward({.target = target()});
  const auto backward = forced_backward({.target = target()});
  int problems = 0;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const conformance::Case c = conformance::gradient_case(seed);
    if (c.batch == 0 || c.n_q == 0 || c.n_k == 0) continue;
    const Instance instance(c);
    const conformance::GradientMemory memory = instance.gradient_memory();
    backward(instance.backward_inputs(), memory.gradients(), instance.options());
    const auto read_rows = [](const conformance::Array& array) {
      return array.exists() ? conformance::read_sum(array.tensor()) : conformance::Dense();
    };
    conformance::Check(instance, forward)
        .all({read_rows(memory.dq), read_rows(memory.dk), read_rows(memory.dv), read_rows(memory.dbias),
              read_rows(memory.dscale), read_rows(memory.dsinks), read_rows(memory.drelative)});
    ++problems;
  }
  EXPECT_GE(problems, 40);
}

// A call with one head whose gradients are easily asked for.
struct OneHead {
  std::int64_t n, d, d_v;
  std::vector<double> q, k, v, out, lse, dout, dq, dk, dv;

  OneHead(std::int64_t rows, std::int64_t size, std::int64_t value_size)
      : n(rows),
        d(size),
        d_v(value_size),
        q(n * d),
        k(n * d),
        v(n * d_v),
        out(n * d_v),
        lse(n),
        dout(n * d_v),
        dq(n * d),
        dk(n * d),
        dv(n * d_v) {
    conformance::Generator random(5);
    for (auto* x : {&q, &k, &v, &dout}) {
      for (double& value : *x) value = random.normal();
    }
  }

  std::vector<double> weights(const Options& options) {
    std::vector<double> w(static_cast<std::size_t>(n * n));
    attention(view(q.data(), {1, 1, n, d}), view(k.data(), {1, 1, n, d}), view(v.data(), {1, 1, n, d_v}),
              view(out.data(), {1, 1, n, d_v}), options,
              {.lse = row_view(lse.data(), {1, 1, n}), .weights = view(w.data(), {1, 1, n, n})});
    return w;
  }

  Gradients gradients() {
    return {.dq = view(dq.data(), {1, 1, n, d}),
            .dk = view(dk.data(), {1, 1, n, d}),
            .dv = view(dv.data(), {1, 1, n, d_v})};
  }

  void backward(const Options& options, const Gradients& wanted, const Forced& forced) {
    run_forced({.q = view(q.data(), {1, 1, n, d}),
                .k = view(k.data(), {1, 1, n, d}),
                .v = view(v.data(), {1, 1, n, d_v}),
                .out = view(out.data(), {1, 1, n, d_v}),
                .lse = row_view(lse.data(), {1, 1, n}),
                .dout = view(dout.data(), {1, 1, n, d_v})},
               wanted, options, forced);
  }
};

// With dout a single 1 in row i, dv_j is the weight that multiplied v_j in the forward pass, dropped or not.
TEST_P(Backward, DropoutIsThatOfTheForwardPassForAnyTiling) {
  OneHead x(200, 8, 1);
  const Options options{.dropout = 0.4, .seed = 99};
  const std::vector<double> weights = x.weights(options);
  for (const Tiles& tiles : {Tiles{}, Tiles{12, 64}, Tiles{48, 128}}) {
    for (const std::int64_t i : {0, 1, 63, 64, 130, 199}) {
      std::fill(x.dout.begin(), x.dout.end(), 0.0);
      x.dout[static_cast<std::size_t>(i)] = 1.0;
      x.backward(options, x.gradients(), {.target = target(), .tiles = tiles});
      int dropped = 0;
      for (std::int64_t j = 0; j < x.n; ++j) {
        const double weight = weights[static_cast<std::size_t>(i * x.n + j)];
        EXPECT_NEAR(x.dv[static_cast<std::size_t>(j)], weight, 1e-14) << i << ", " << j;
        EXPECT_EQ(x.dv[static_cast<std::size_t>(j)] == 0, weight == 0) << i << ", " << j;
        dropped += weight == 0;
      }
      EXPECT_NEAR(dropped, 80, 35) << i;
    }
  }
}

// What is kept is divided by 1 − p, so that the mean over seeds is the weight without dropout.
TEST_P(Backward, DropoutKeepsTheMean) {
  constexpr int kSeeds = 1000;
  constexpr double kDropout = 0.3;
  OneHead x(70, 8, 1);
  const std::vector<double> weights = x.weights({});
  std::fill(x.dout.begin(), x.dout.end(), 0.0);
  x.dout[5] = 1.0;
  std::vector<double> mean(static_cast<std::size_t>(x.n));
  for (int seed = 0; seed < kSeeds; ++seed) {
    x.backward({.dropout = kDropout, .seed = static_cast<std::uint64_t>(seed)}, x.gradients(), {.target = target()});
    for (std::size_t j = 0; j < mean.size(); ++j) mean[j] += x.dv[j] / kSeeds;
  }
  const double deviation = std::sqrt(kDropout / (1 - kDropout) / kSeeds);
  for (std::size_t j = 0; j < mean.size(); ++j) {
    EXPECT_NEAR(mean[j] / weights[5 * mean.size() + j], 1.0, 5 * deviation) << j;
  }
}

TEST_P(Backward, AGradientRequestedAloneHasTheSameBits) {
  OneHead all(150, 24, 16), one(150, 24, 16);
  const Options options{.softcap = 3.0, .causal = Causal::top_left, .dropout = 0.2};
  const Forced forced{.target = target(), .tiles = {12, 64}};
  all.weights(options);
  one.weights(options);
  all.backward(options, all.gradients(), forced);
  one.backward(options, {.dq = one.gradients().dq}, forced);
  one.backward(options, {.dk = one.gradients().dk}, forced);
  one.backward(options, {.dv = one.gradients().dv}, forced);
  EXPECT_EQ(one.dq, all.dq);
  EXPECT_EQ(one.dk, all.dk);
  EXPECT_EQ(one.dv, all.dv);
}

// A bias of −1e30 on all keys leaves an lse of −1e30, which cannot hold the logarithm of their number.
TEST_P(Backward, WeightsDoNotNeedAnLseThatHoldsThem) {
  OneHead x(100, 8, 1);
  std::vector<double> bias(1, -1e30);
  Options options;
  options.bias = view(bias.data(), {1, 1, 1, 1});
  const std::vector<double> weights = x.weights(options);
  std::fill(x.dout.begin(), x.dout.end(), 0.0);
  x.dout[7] = 1.0;
  x.backward(options, x.gradients(), {.target = target()});
  for (std::size_t j = 0; j < 100; ++j) EXPECT_NEAR(x.dv[j], weights[700 + j], 1e-14);
}

// The lowest float is what many mask with. A row that has nothing else is not masked: its weights are equal.
TEST_P(Backward, TheLowestFloatAsABiasLeavesWeights) {
  constexpr std::int64_t n = 20, d = 8;
  std::vector<float> q(n * d), k(n * d), v(n * d, 1.0f), out(n * d), lse(n), dout(n * d, 1.0f), dv(n * d);
  conformance::Generator random(3);
  for (auto* x : {&q, &k}) {
    for (float& value : *x) value = static_cast<float>(random.normal());
  }
  const auto tensor = [](auto& x) { return view(x.data(), {1, 1, n, d}); };
  for (const float lowest : {std::numeric_limits<float>::lowest(), -2.4e38f}) {
    std::vector<float> bias(1, lowest);
    Options options;
    options.bias = view(bias.data(), {1, 1, 1, 1});
    run_forced(tensor(q), tensor(k), tensor(v), tensor(out), options, {.lse = row_view(lse.data(), {1, 1, n})},
               {.target = target()});
    for (const float x : out) EXPECT_NEAR(x, 1.0f, 1e-6f);
    run_forced({.q = tensor(q),
                .k = tensor(k),
                .v = tensor(v),
                .out = tensor(out),
                .lse = row_view(lse.data(), {1, 1, n}),
                .dout = tensor(dout)},
               {.dv = tensor(dv)}, options, {.target = target()});
    for (const float x : dv) EXPECT_NEAR(x, 1.0f, 1e-5f);
  }
}

// A sink that takes nearly all: its gradient must not see how its logit was rounded.
TEST_P(Backward, LargeSinksHaveExactGradients) {
  constexpr std::int64_t n = 8, d = 8;
  std::vector<float> q(n * d, 0.1f), k(n * d, 0.1f), v(n * d), out(n * d), lse(n), dlse(n, 1.0f), dout(n * d), dsink(1);
  const auto tensor = [](auto& x) { return view(x.data(), {1, 1, n, d}); };
  for (const float logit : {1234.5f, 12345.6f, 100003.0f}) {
    std::vector<float> sink(1, logit);
    Options options;
    options.sinks = head_view(sink.data(), 1);
    run_forced(tensor(q), tensor(k), tensor(v), tensor(out), options, {.lse = row_view(lse.data(), {1, 1, n})},
               {.target = target()});
    run_forced({.q = tensor(q),
                .k = tensor(k),
                .v = tensor(v),
                .out = tensor(out),
                .lse = row_view(lse.data(), {1, 1, n}),
                .dout = tensor(dout),
                .dlse = row_view(dlse.data(), {1, 1, n})},
               {.dsinks = head_view(dsink.data(), 1)}, options, {.target = target()});
    EXPECT_NEAR(dsink[0], 8.0f, 1e-5f) << logit;
  }
}

KEEL_ON_EVERY_TARGET(Backward);

}  // namespace
}  // namespace keel
