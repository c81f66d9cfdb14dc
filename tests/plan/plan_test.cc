// The CPU's plans: pure functions of problem and resources, which come in as arguments.
#include "plan/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "api/backends.h"
#include "keel/attention.h"

namespace keel {
namespace {

using testing::HasSubstr;
using testing::Not;

// A machine that is not this one.
Machine some_machine(int threads) {
  Machine m = machine();
  m.threads = threads;
  m.l1_bytes = 48 << 10;
  m.l2_bytes = 1 << 20;
  return m;
}

TensorView described(std::int64_t heads, std::int64_t n, std::int64_t d) {
  const std::array<std::int64_t, 4> shape = {1, heads, n, d};
  return {nullptr, DType::f32, shape, contiguous_strides(shape)};
}

MutableTensorView writable(const TensorView& x) { return {nullptr, x.dtype, x.shape, x.strides}; }

std::string text_of(std::int64_t heads, std::int64_t n_q, std::int64_t n_k, const Machine& machine, int team = 0,
                    const Options& options = {}) {
  const TensorView q = described(heads, n_q, 64), k = described(heads, n_k, 64);
  const Problem problem = make_problem(q, k, k, writable(q), options, {}, Pointers::ignored);
  std::vector<std::string> reasons;
  const Plan plan =
      make_plan(problem, backends(), {.resources = {.machine = &machine, .team_threads = team}, .reasons = &reasons});
  return describe(plan, reasons);
}

TEST(Plan, FollowsTheMachineThatItIsGiven) {
  const Machine one = some_machine(1), many = some_machine(64);
  EXPECT_THAT(text_of(8, 2048, 2048, one), HasSubstr("threads    1\n"));
  EXPECT_THAT(text_of(8, 2048, 2048, many), HasSubstr("threads    64\n"));
}

TEST(Plan, ATeamMakesSmallerCallsWorthSharing) {
  const Machine two = some_machine(2);
  EXPECT_THAT(text_of(4, 32, 32, two), HasSubstr("threads    1\n"));
  EXPECT_THAT(text_of(4, 32, 32, two, /*team=*/2), HasSubstr("threads    2\n"));
}

TEST(Plan, IsTheSameForTheSameArguments) {
  const Machine m = some_machine(3);
  EXPECT_EQ(text_of(2, 100, 9000, m), text_of(2, 100, 9000, m));
}

TEST(Plan, KeysAreSplitWhereRowsAreTooFewForTheThreads) {
  const Machine m = some_machine(8);
  EXPECT_THAT(text_of(1, 1, 65536, m), HasSubstr("chunks of keys"));
  EXPECT_THAT(text_of(64, 4096, 65536, m), Not(HasSubstr("chunks of keys")));
}

TEST(Plan, TheTilesOfKeysDoNotDependOnTheRows) {
  const Machine m = some_machine(4);
  const auto tiles = [](const std::string& text) { return text.substr(text.find(" rows × "), 40); };
  EXPECT_EQ(tiles(text_of(1, 1, 5000, m)), tiles(text_of(8, 5000, 5000, m)));
}

TEST(Explain, GradientsHaveAPlanToo) {
  const TensorView x = described(4, 1024, 64);
  const std::array<std::int64_t, 3> rows = {1, 4, 1024};
  const RowView lse = {nullptr, DType::f32, rows, contiguous_strides(rows)};
  const BackwardInputs inputs = {.q = x, .k = x, .v = x, .out = x, .lse = lse, .dout = x};
  const std::string text = explain(inputs, {.dq = writable(x)}, {.causal = Causal::top_left});
  EXPECT_THAT(text, HasSubstr("kernel     streaming, backward\n"));
  EXPECT_THAT(text, HasSubstr("because    blocks of "));
}

}  // namespace
}  // namespace keel
