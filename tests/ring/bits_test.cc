// Results to the last bit: those of one process, and of the same call again.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "conformance/expected.h"
#include "conformance/random.h"
#include "conformance/seeds.h"
#include "conformance/table.h"
#include "ring/over_ranks.h"

namespace keel::conformance {
namespace {

std::string bits_of(const ForwardMemory& m) {
  std::string all;
  for (const Array* x : {&m.out, &m.lse, &m.max_logit, &m.entropy, &m.max_weight, &m.logit_mean, &m.logit_var,
                         &m.visible, &m.logit_count, &m.weights}) {
    if (x->exists()) all += x->contents();
  }
  return all;
}

std::string forward_bits(const Instance& x, const Forward& run) {
  const ForwardMemory memory = x.forward_memory();
  run(x.q(), x.k(), x.v(), memory.out_view(), x.options(), memory.outputs());
  return bits_of(memory);
}

std::string gradient_bits(const Instance& x, const Ranks& ranks, bool bias_and_scale = true) {
  const GradientMemory memory = x.gradient_memory();
  Gradients gradients = memory.gradients();
  if (!bias_and_scale) gradients.dbias = {}, gradients.dscale = {};
  backward_over_ranks(ranks)(x.backward_inputs(), gradients, x.options());
  std::string all;
  for (const Array* g : {&memory.dq, &memory.dk, &memory.dv, &memory.dbias, &memory.dscale, &memory.dsinks}) {
    if (g->exists()) all += g->contents();
  }
  return all;
}

void expect_one_process_bits(const Case& c, int size, ring::Layout layout) {
  const Instance instance(for_many_processes(c));
  const Ranks ranks = {size, layout, ring::Mode::ordered};
  EXPECT_TRUE(forward_bits(instance, over_ranks(ranks)) == forward_bits(instance, keel::attention))
      << describe(c) << "\n"
      << describe(ranks);
}

constexpr ring::Layout kLayouts[] = {ring::Layout::contiguous, ring::Layout::zigzag};

TEST(Ordered, EveryCaseHasTheBitsOfOneProcess) {
  int number = 0;
  for (const Case& c : table()) {
    for (const int size : {2, 3, 5, 8}) expect_one_process_bits(c, size, kLayouts[++number % 2]);
  }
}

TEST(Ordered, RandomProblemsHaveTheBitsOfOneProcess) {
  for (const std::uint64_t seed : seeds(300)) {
    expect_one_process_bits(random_case(seed + 50'000), 1 + static_cast<int>(seed % 8), kLayouts[seed / 8 % 2]);
  }
}

// Longer than the chunks that kernels sum up apart, with windows that leave out the first of them.
TEST(Ordered, LongSequencesHaveTheBitsOfOneProcess) {
  for (const ring::Layout layout : kLayouts) {
    for (const int size : {2, 5}) {
      Case c;
      c.name = "long";
      c.n_q = c.n_k = 13'000;
      c.d_k = c.d_v = 8;
      c.statistics = true;
      c.causal = Causal::top_left;
      expect_one_process_bits(c, size, layout);
      c.window.left = 700;
      expect_one_process_bits(c, size, layout);
      c.q_offsets = c.k_offsets = {0, 100, 5'300, 13'000};
      expect_one_process_bits(c, size, layout);
    }
  }
}

TEST(OverRanks, AThousandRepeatsHaveTheSameBits) {
  Case c;
  c.name = "repeats";
  c.batch = c.kv_heads = 2;
  c.q_heads = 4;
  c.n_q = 61, c.n_k = 67;
  c.d_k = 16, c.d_v = 12;
  c.causal = Causal::bottom_right;
  c.bias = BiasKind::normal;
  c.sinks = c.statistics = c.key_sums = true;
  c.dropout = 0.2;
  const Instance instance(c);
  const Ranks ranks = {.size = 3};
  const std::string first = forward_bits(instance, over_ranks(ranks)), gradients = gradient_bits(instance, ranks);
  for (int repeat = 0; repeat < 1000; ++repeat) {
    ASSERT_TRUE(forward_bits(instance, over_ranks(ranks)) == first) << "repeat " << repeat;
    ASSERT_TRUE(gradient_bits(instance, ranks) == gradients) << "repeat " << repeat;
  }
}

// A rank of one thread takes a head at a time, one of several threads all heads; with dbias or dscale both take all.
TEST(OverRanks, TheThreadsOfARankChangeNoBits) {
  const auto expect_same = [](const Case& c, int size, ring::Layout layout) {
    const Instance instance(for_many_processes(c));
    const Ranks one = {size, layout}, two = {.size = size, .layout = layout, .threads = 2};
    EXPECT_TRUE(forward_bits(instance, over_ranks(one)) == forward_bits(instance, over_ranks(two))) << describe(c);
    for (const bool bias_and_scale : {true, false}) {
      EXPECT_TRUE(gradient_bits(instance, one, bias_and_scale) == gradient_bits(instance, two, bias_and_scale))
          << describe(c);
    }
  };
  Case lengths;  // of which one alone would be taken in smaller blocks
  lengths.name = "a long entry beside a short one";
  lengths.batch = 2;
  lengths.n_q = 24, lengths.n_k = 8192;
  lengths.d_k = lengths.d_v = 32;
  lengths.k_lengths = {8192, 1000};
  lengths.lse = lengths.gradients = true;
  expect_same(lengths, 2, ring::Layout::contiguous);
  int number = 0;
  for (const Case& c : table()) {
    ++number;
    if (lse_tells_weights(c)) expect_same(c, 2 + number % 3, kLayouts[number % 2]);
  }
  for (const std::uint64_t seed : seeds(100)) {
    const Case c = random_case(seed + 70'000);
    if (lse_tells_weights(c)) expect_same(c, 2 + static_cast<int>(seed % 3), kLayouts[seed % 2]);
  }
}

double largest_error(const Dense& x, const Dense& oracle) {
  double most = 0.0;
  for (std::size_t at = 0; at < x.values.size(); ++at) {
    if (std::isnan(x.values[at]) && std::isnan(oracle.values[at])) continue;
    most = std::max(most, std::fabs(x.values[at] - oracle.values[at]));
  }
  return most;
}

// Parts are merged, and gradients added up, in f32: many ranks lose nothing.
TEST(OverRanks, SixteenBitResultsOfEightRanksAreAsGoodAsThoseOfOne) {
  double worst = 0.0;
  const auto judge = [&](const Case& c, const char* name, const Dense& one, const Dense& eight, const Dense& oracle) {
    const double allowed = 1.1 * largest_error(one, oracle), error = largest_error(eight, oracle);
    EXPECT_LE(error, allowed) << describe(c) << "\n" << name;
    if (allowed > 0.0) worst = std::max(worst, 1.1 * error / allowed);
  };
  for (const Case& c : table()) {
    if (size_of(c.dtype) != 2 || !lse_tells_weights(c) || c.values == Values::huge) continue;
    const Instance instance(for_many_processes(c));
    const auto out_of = [&](int size) {
      const ForwardMemory memory = instance.forward_memory();
      over_ranks({.size = size})(instance.q(), instance.k(), instance.v(), memory.out_view(), instance.options(), {});
      return read(memory.out_view());
    };
    judge(c, "out", out_of(1), out_of(8), instance.expected().out);
    if (!c.gradients) continue;
    const auto gradients_of = [&](int size) {
      const GradientMemory memory = instance.gradient_memory();
      backward_over_ranks({.size = size})(instance.backward_inputs(), memory.gradients(), instance.options());
      return std::array{read(memory.dq.tensor()), read(memory.dk.tensor()), read(memory.dv.tensor())};
    };
    const auto one = gradients_of(1), eight = gradients_of(8);
    const ExpectedGradients& e = instance.expected_gradients();
    judge(c, "dq", one[0], eight[0], e.dq);
    judge(c, "dk", one[1], eight[1], e.dk);
    judge(c, "dv", one[2], eight[2], e.dv);
  }
  std::printf("worst error of eight ranks ÷ that of one: %.3g\n", worst);
}

}  // namespace
}  // namespace keel::conformance
