#include "runtime/parallel.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cfenv>
#include <stdexcept>
#include <thread>
#include <vector>

#include "runtime/machine.h"

namespace keel {
namespace {

// A team as an OpenMP library has one: it may give fewer threads than it promised, as in a parallel region of its own.
int promised = 0, given = 0;
std::atomic<int> calls = 0;

void run_team(void (*work)(void*), void* data, unsigned threads, unsigned flags) {
  EXPECT_EQ(threads, 0u) << "which is all of them";
  EXPECT_EQ(flags, 0u);
  ++calls;
  std::vector<std::jthread> others;
  for (int i = 1; i < given; ++i) others.emplace_back(work, data);
  work(data);
}

class Parallel : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    use_team({run_team, [] { return promised; }});
  }
  void SetUp() override { promised = given = 4, calls = 0; }

  // How often each of `count` tasks was called.
  static std::vector<int> run(std::int64_t count, int threads) {
    std::vector<std::atomic<int>> times(static_cast<std::size_t>(count));
    parallel_tasks(count, threads, [&](std::int64_t i) { ++times[static_cast<std::size_t>(i)]; });
    return {times.begin(), times.end()};
  }
};

TEST_F(Parallel, ATeamTakesEveryTaskOnce) {
  EXPECT_EQ(run(1000, 4), std::vector(1000, 1));
  EXPECT_EQ(calls, 1);
}

TEST_F(Parallel, NoMoreMembersWorkThanRequested) {
  std::atomic<int> now = 0, most = 0;
  for (int round = 0; round < 50; ++round) {
    parallel_tasks(20, 2, [&](std::int64_t) {
      int seen = ++now;
      for (int old = most; seen > old && !most.compare_exchange_weak(old, seen);) continue;
      std::this_thread::yield();
      --now;
    });
  }
  EXPECT_LE(most, 2);
  EXPECT_EQ(calls, 50);
}

TEST_F(Parallel, TheCallerIsAmongThem) {
  for (int round = 0; round < 50; ++round) {
    std::atomic<bool> called = false;
    const auto caller = std::this_thread::get_id();
    parallel_tasks(2, 2, [&](std::int64_t) {
      if (std::this_thread::get_id() == caller) called = true;
      while (!called) std::this_thread::yield();  // for ever, were both of them others
    });
  }
}

TEST_F(Parallel, EveryMemberRoundsAsTheCallerDoes) {
  std::fesetround(FE_UPWARD);
  std::atomic<int> arrived = 0, upward = 0;
  parallel_tasks(4, 4, [&](std::int64_t) {
    if (std::fegetround() == FE_UPWARD) ++upward;
    for (++arrived; arrived < 4;) std::this_thread::yield();  // one task a thread
  });
  std::fesetround(FE_TONEAREST);
  EXPECT_EQ(upward, 4);
}

TEST_F(Parallel, OneMemberMoreOrLessLosesNothing) {
  for (given = 1; given < 8; ++given) EXPECT_EQ(run(100, 4), std::vector(100, 1)) << given << " threads came";
}

TEST_F(Parallel, ATeamTooSmallIsNotAsked) {
  EXPECT_EQ(run(100, 5), std::vector(100, 1));
  promised = 1;
  EXPECT_EQ(run(100, 2), std::vector(100, 1));
  EXPECT_EQ(calls, 0);
  EXPECT_FALSE(resources().has_team(2));
}

TEST_F(Parallel, OneTaskOrThreadNeedsNoOther) {
  const auto caller = std::this_thread::get_id();
  parallel_tasks(1, 4, [&](std::int64_t) { EXPECT_EQ(std::this_thread::get_id(), caller); });
  parallel_tasks(9, 1, [&](std::int64_t) { EXPECT_EQ(std::this_thread::get_id(), caller); });
  EXPECT_EQ(run(0, 4), std::vector<int>());
  EXPECT_EQ(calls, 0);
}

TEST_F(Parallel, WithoutATeamOrOneTbbTheCallerDoesItAll) {
  if (machine().own_threads) GTEST_SKIP() << "this library has oneTBB's threads";
  promised = 1;
  const auto caller = std::this_thread::get_id();
  parallel_tasks(100, 4, [&](std::int64_t) { EXPECT_EQ(std::this_thread::get_id(), caller); });
  EXPECT_EQ(run(100, 4), std::vector(100, 1));
}

TEST_F(Parallel, AnExceptionComesBack) {
  for (const int threads : {1, 4, 5}) {  // alone, by the team, by oneTBB
    EXPECT_THROW(parallel_tasks(50, threads,
                                [](std::int64_t i) {
                                  if (i == 7) throw std::runtime_error("seven");
                                }),
                 std::runtime_error)
        << threads;
  }
}

}  // namespace
}  // namespace keel
