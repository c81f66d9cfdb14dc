#include "core/problem.h"

#include <gtest/gtest.h>

#include <limits>

#include "conformance/generator.h"
#include "conformance/instance.h"
#include "conformance/random.h"

namespace keel {
namespace {

// A problem of these sizes over views that are never read.
Problem problem_of(std::int64_t batch, std::int64_t n_q, std::int64_t n_k, const Options& options) {
  static float memory[4096];
  const auto tensor = [&](std::int64_t n) { return TensorView{memory, DType::f32, {batch, 1, n, 1}, {0, 0, 0, 0}}; };
  static float out[4096];
  return make_problem(tensor(n_q), tensor(n_k), tensor(n_k), view(out, {batch, 1, n_q, 1}), options, {});
}

TEST(KeyRange, AgreesWithTheDefinitionOfCausalWindowAndLengths) {
  conformance::Generator random(5);
  constexpr Causal alignments[] = {Causal::none, Causal::top_left, Causal::bottom_right};
  for (int n = 0; n < 2000; ++n) {
    const std::int64_t n_q = random.integer(0, 9), n_k = random.integer(0, 9);
    const std::int64_t q_len = random.integer(0, n_q), k_len = random.integer(0, n_k);
    Options o{.causal = random.pick(alignments), .q_lengths = {&q_len, 1}, .k_lengths = {&k_len, 1}};
    if (random.chance(0.5)) o.window.left = random.integer(0, 5);
    if (random.chance(0.5)) o.window.right = random.integer(0, 5);
    if (random.chance(0.1)) o.window.left = Window::kUnbounded - random.integer(0, 3);
    if (random.chance(0.1)) o.window.right = Window::kUnbounded - random.integer(0, 3);
    const Problem p = problem_of(1, n_q, n_k, o);
    const std::int64_t offset = o.causal == Causal::top_left ? 0 : k_len - q_len;
    for (std::int64_t i = 0; i < n_q; ++i) {
      const KeyRange range = p.sequences.key_range(p.entry(0), i);
      EXPECT_TRUE(range.begin <= range.end && range.begin >= 0 && range.end <= k_len);
      for (std::int64_t j = 0; j < n_k; ++j) {
        const std::int64_t behind = i + offset - j;  // how far the key lies before the diagonal
        const bool want = i < q_len && j < k_len && (o.causal == Causal::none || behind >= 0) &&
                          behind <= o.window.left && -behind <= o.window.right;
        EXPECT_EQ(j >= range.begin && j < range.end, want)
            << "n_q " << n_q << " n_k " << n_k << " q_len " << q_len << " k_len " << k_len << " i " << i << " j " << j
            << " window " << o.window.left << "," << o.window.right << " causal " << static_cast<int>(o.causal);
      }
    }
  }
}

TEST(Entries, OfPackedBatchesFollowTheOffsets) {
  const std::vector<std::int64_t> q = {0, 3, 3, 7}, k = {0, 0, 5, 6};
  const Problem p = problem_of(1, 7, 6, {.q_offsets = q, .k_offsets = k});
  ASSERT_EQ(p.entries(), 3);
  const Entry second = p.entry(1), third = p.entry(2);
  EXPECT_EQ(second.q_rows, 0);
  EXPECT_EQ(second.k_begin, 0);
  EXPECT_EQ(second.k_len, 5);
  EXPECT_EQ(third.q_begin, 3);
  EXPECT_EQ(third.q_rows, 4);
  EXPECT_EQ(third.q_len, 4);
  EXPECT_EQ(third.k_begin, 5);
  EXPECT_EQ(third.k_len, 1);
  EXPECT_EQ(third.batch, 0);
}

TEST(Entries, OfPaddedBatchesFollowTheLengths) {
  const std::vector<std::int64_t> q = {3, 0};
  const Problem p = problem_of(2, 7, 6, {.q_lengths = q});
  ASSERT_EQ(p.entries(), 2);
  EXPECT_EQ(p.entry(0).q_rows, 7);
  EXPECT_EQ(p.entry(0).q_len, 3);
  EXPECT_EQ(p.entry(1).q_len, 0);
  EXPECT_EQ(p.entry(1).k_len, 6);
  EXPECT_EQ(p.entry(1).batch, 1);
}

TEST(Broadcast, DimensionsGetFullSizeAndStrideZero) {
  const bool yes = true;
  const float slope[2] = {0.5f, 1.0f};
  const Options o{.scale_tensor = row_view(slope, {1, 1, 1}), .mask = view(&yes, {1, 1, 1, 1})};
  const Problem p = problem_of(2, 3, 4, o);
  EXPECT_EQ(p.options.mask.shape, (std::array<std::int64_t, 4>{2, 1, 3, 4}));
  EXPECT_EQ(p.options.mask.strides, (std::array<std::int64_t, 4>{0, 0, 0, 0}));
  EXPECT_EQ(p.options.scale_tensor.shape, (std::array<std::int64_t, 3>{2, 1, 3}));
  EXPECT_EQ(p.options.scale_tensor.strides, (std::array<std::int64_t, 3>{0, 0, 0}));
}

// Strides along dimensions of size 1, and of views that are not given, may be anything: kernels multiply with them.
TEST(Strides, ThatAreNeverFollowedAreReset) {
  constexpr std::int64_t wild = std::numeric_limits<std::int64_t>::max();
  float q = 1.0f, k[2] = {}, v[2] = {}, out = 0.0f;
  Outputs outputs;
  outputs.lse.strides = {wild, wild, wild};
  const Problem p = make_problem({&q, DType::f32, {1, 1, 1, 1}, {wild, wild, wild, wild}},
                                 {k, DType::f32, {1, 1, 2, 1}, {wild, wild, 1, wild}},
                                 {v + 1, DType::f32, {1, 1, 2, 1}, {wild, wild, -1, wild}},
                                 {&out, DType::f32, {1, 1, 1, 1}, {wild, wild, wild, wild}}, {}, outputs);
  EXPECT_EQ(p.q.strides, (std::array<std::int64_t, 4>{0, 0, 0, 1}));
  EXPECT_EQ(p.k.strides, (std::array<std::int64_t, 4>{0, 0, 1, 1}));
  EXPECT_EQ(p.v.strides, (std::array<std::int64_t, 4>{0, 0, -1, 1}));
  EXPECT_EQ(p.out.strides, (std::array<std::int64_t, 4>{0, 0, 0, 1}));
  EXPECT_EQ(p.outputs.lse.strides, (std::array<std::int64_t, 3>{0, 0, 0}));
}

TEST(BackwardProblems, HoldTheResultOfTheForwardCall) {
  const conformance::Instance instance(conformance::random_case(3, 5000));
  const conformance::GradientMemory memory = instance.gradient_memory();
  const BackwardInputs inputs = instance.backward_inputs();
  const BackwardProblem b = make_backward_problem(inputs, memory.gradients(), instance.options());
  EXPECT_EQ(b.forward.out.data, inputs.out.data);
  EXPECT_EQ(b.forward.out.shape, inputs.out.shape);
  EXPECT_EQ(b.lse.data, inputs.lse.data);
}

TEST(Heads, OfQueriesReadKeyHeadsInOrder) {
  static float memory[64];
  const auto tensor = [&](std::int64_t heads) { return TensorView{memory, DType::f32, {1, heads, 1, 1}, {}}; };
  static float out[12];
  const Problem p = make_problem(tensor(12), tensor(4), tensor(4), view(out, {1, 12, 1, 1}), {}, {});
  for (std::int64_t h = 0; h < 12; ++h) EXPECT_EQ(p.kv_head(h), h * 4 / 12);
}

TEST(RandomCases, AreValid) {
  for (std::uint64_t seed = 0; seed < 2000; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const conformance::Instance instance(conformance::random_case(seed, 5000));
    conformance::ForwardMemory memory = instance.forward_memory();
    EXPECT_NO_THROW(make_problem(instance.q(), instance.k(), instance.v(), memory.out_view(), instance.options(),
                                 memory.outputs()));
  }
}

}  // namespace
}  // namespace keel
