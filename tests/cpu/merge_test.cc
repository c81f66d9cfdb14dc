// merge() against the oracle: random parts on every SIMD target, and the same bits for any division among threads.
#include "cpu/merge.h"

#include <gtest/gtest.h>
#include <hwy/targets.h>
#include <tbb/global_control.h>

#include <string>
#include <vector>

#include "conformance/merge.h"
#include "cpu/forced.h"
#include "cpu/on_target.h"

namespace keel {
namespace {

using conformance::MergeInstance;

TEST(MergeOnEveryTarget, RandomPartsMatchTheOracle) {
  for (std::uint64_t seed = 0; seed < random_problems(400); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const conformance::ExpectedMerge expected = conformance::compute_expected(MergeInstance(seed).problem());
    for (const std::int64_t target : machine().target_bits) {
      SCOPED_TRACE(hwy::TargetName(target));
      const MergeInstance call(seed);
      const MergeProblem problem = call.problem();
      run_forced(problem, {.target = target});
      EXPECT_EQ(merge_mismatch(problem, expected), "");
      EXPECT_EQ(call.outside_writes(), "");
    }
    if (testing::Test::HasFailure()) return;
  }
}

TEST(MergeOnEveryTarget, SameBitsForAnyNumberOfThreads) {
  const tbb::global_control seven(tbb::global_control::max_allowed_parallelism, 7);  // whatever this machine has
  for (std::uint64_t seed = 0; seed < random_problems(100); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    for (const std::int64_t target : machine().target_bits) {
      const auto bytes = [&](int threads, std::int64_t row_block) {
        const MergeInstance call(seed);
        MergeProblem problem = call.problem();
        problem.threads = threads;
        run_forced(problem, {.target = target, .tiles = {.row_block = row_block}, .share_small = true});
        return call.bytes();
      };
      const std::string one = bytes(1, 1 << 20);
      for (const int threads : {1, 2, 3, 7}) {
        EXPECT_EQ(bytes(threads, 5) == one, true) << threads << " threads";
        EXPECT_EQ(bytes(threads, 37) == one, true) << threads << " threads";
      }
    }
  }
}

// A call that is large enough for the planner itself to share it, through the interface.
TEST(MergePlan, SharesOnlyLargeCalls) {
  std::vector<float> values(1 << 22), lse(1 << 16);
  const auto plan = [&](std::int64_t rows, int threads) {
    const Partial part = {.out = view(const_cast<const float*>(values.data()), {1, 1, rows, 64}),
                          .lse = row_view(const_cast<const float*>(lse.data()), {1, 1, rows})};
    std::vector<float> out(static_cast<std::size_t>(rows) * 64);
    Machine four = machine();
    four.threads = 4;
    return make_plan(make_merge_problem({{part}}, view(out.data(), {1, 1, rows, 64}), {}, threads), backends(),
                     {.resources = {.machine = &four}});
  };
  EXPECT_EQ(plan(16, 0).threads, 1);
  EXPECT_EQ(plan(16, 3).threads, 1);
  EXPECT_EQ(plan(1 << 16, 0).threads, 4);
  EXPECT_EQ(plan(1 << 16, 3).threads, 3);
  EXPECT_EQ(plan(1 << 16, 1).threads, 1);
  EXPECT_GE(plan(1 << 16, 0).tasks, 4);  // for all of them
}

}  // namespace
}  // namespace keel
