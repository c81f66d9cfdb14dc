// attention_jvp() and attention_double_backward() against the oracle, on every SIMD target that this machine has.
#include <gtest/gtest.h>
#include <hwy/targets.h>
#include <tbb/global_control.h>

#include "conformance/random.h"
#include "conformance/table.h"
#include "conformance/tangents.h"
#include "cpu/forced.h"
#include "cpu/on_target.h"

namespace keel {
namespace {

using conformance::Case;
using conformance::Instance;
using conformance::TangentCase;
using conformance::TangentMemory;

void run_forced(const TangentProblem& problem, const Forced& forced) {
  make_plan(problem, backends(), {.resources = resources(), .forced = forced}).execute();
}

conformance::Jvp forced_jvp(const Forced& forced) {
  return [forced](const JvpInputs& inputs, const Tangents& tangents, const JvpOutputs& outputs,
                  const Options& options) { run_forced(make_jvp_problem(inputs, tangents, outputs, options), forced); };
}

conformance::DoubleBackward forced_double(const Forced& forced) {
  return [forced](const BackwardInputs& inputs, const Tangents& tangents, const DoubleGradients& gradients,
                  const Options& options) {
    run_forced(make_double_backward_problem(inputs, tangents, gradients, options), forced);
  };
}

// On every target: as planned; with small tiles, which cross every boundary, in one task a head and in tasks of their
// own.
void expect_on_every_target(const Case& c) {
  if (!conformance::has_tangents(c)) return;
  const Instance instance(c);
  const TangentCase x(instance);
  for (const std::int64_t target : machine().target_bits) {
    SCOPED_TRACE(hwy::TargetName(target));
    for (const Forced& forced :
         {Forced{.target = target}, Forced{.target = target, .tiles = {12, 64}, .split_keys = false},
          Forced{.target = target, .tiles = {24, 64}, .split_keys = true, .share_small = true}}) {
      EXPECT_EQ(jvp_mismatch(x, forced_jvp(forced)), "") << describe(c);
      EXPECT_EQ(double_backward_mismatch(x, forced_double(forced)), "") << describe(c);
    }
  }
}

TEST(TangentsOnEveryTarget, TableMatchesTheOracle) {
  int compared = 0;
  for (const Case& c : conformance::table()) {
    expect_on_every_target(c);
    compared += conformance::has_tangents(c);
  }
  EXPECT_GE(compared, static_cast<int>(conformance::table().size()) / 2);
}

TEST(TangentsOnEveryTarget, RandomProblemsMatchTheOracle) {
  for (std::uint64_t seed = 0; seed < random_problems(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    expect_on_every_target(conformance::random_case(seed));
    expect_on_every_target(conformance::random_case_with_masking_bias(seed));
  }
}

// All bytes that both calls wrote.
std::string bytes_of(const TangentCase& x, int threads, const Forced& forced) {
  Options options = x.instance().options();
  options.threads = threads;
  const TangentMemory jvp = x.memory(), second = x.memory();
  run_forced(make_jvp_problem(x.jvp_inputs(), x.tangents(), jvp.jvp(), options), forced);
  run_forced(make_double_backward_problem(x.inputs(), x.tangents(), second.gradients(), options), forced);
  std::string bytes;
  for (const conformance::Array* array :
       {&jvp.tout, &jvp.tlse, &second.tout, &second.tlse, &second.of.dq, &second.of.dk, &second.of.dv, &second.of.dbias,
        &second.of.dscale, &second.of.dsinks}) {
    if (array->exists()) bytes += array->contents();
  }
  return bytes;
}

TEST(Tangents, SameBitsForAnyNumberOfThreads) {
  const tbb::global_control seven(tbb::global_control::max_allowed_parallelism, 7);  // whatever this machine has
  int compared = 0;
  for (const Case& c : conformance::table()) {
    if (!conformance::has_tangents(c) || c.batch * c.n_q * c.n_k == 0) continue;
    const Instance instance(c);
    const TangentCase x(instance);
    const std::string expected = bytes_of(x, 1, {.tiles = {12, 64}, .split_keys = false, .share_small = true});
    for (const int threads : {2, 3, 7}) {
      EXPECT_TRUE(bytes_of(x, threads, {.tiles = {12, 64}, .share_small = true}) == expected)
          << threads << " threads, " << describe(c);
    }
    ++compared;
  }
  EXPECT_GE(compared, 50);
}

// The plan's memory for one head of n rows and keys, beyond inputs and outputs.
std::int64_t workspace(std::int64_t n, bool is_double) {
  const std::array<std::int64_t, 4> shape = {1, 1, n, 64};
  const MutableTensorView x{nullptr, DType::f32, shape, contiguous_strides(shape)};
  const MutableRowView rows{nullptr, DType::f32, {1, 1, n}, {n, n, 1}};
  const Tangents tangents{.tq = x, .tk = x, .tv = x};
  const BackwardInputs in{.q = x, .k = x, .v = x, .out = x, .lse = rows, .dout = x};
  const TangentProblem problem =
      is_double ? make_double_backward_problem(in, tangents, {.gradients = {.dq = x, .dk = x, .dv = x}, .ddout = x},
                                               {.threads = 1}, Pointers::ignored)
                : make_jvp_problem({.q = x, .k = x, .v = x, .out = x, .lse = rows}, tangents, {.tout = x},
                                   {.threads = 1}, Pointers::ignored);
  return make_plan(problem, backends(), {.resources = resources()}).workspace_bytes;
}

TEST(Tangents, MemoryGrowsWithTheLengthAndNotWithItsSquare) {
  constexpr std::int64_t n = 32768;
  for (const bool is_double : {false, true}) {
    EXPECT_LE(workspace(2 * n, is_double), 2 * workspace(n, is_double)) << is_double;
    EXPECT_LE(workspace(n, is_double), 8 * n * 64 * 4) << is_double;  // eight arrays like q
  }
}

}  // namespace
}  // namespace keel
