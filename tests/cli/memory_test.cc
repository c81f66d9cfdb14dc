// Memory, or a thread, that cannot be had at any one point of a run: one line and a status, or a run as good as any.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <atomic>
#include <string>
#include <thread>

#include "io/file.h"
#include "io/npy.h"
#include "program.h"

namespace keel::test {
namespace {

using testing::HasSubstr;

class Memory : public testing::Test {
 protected:
  // Inputs large enough for two threads.
  struct Run {
    Run() {
      for (const std::string name : {"q", "k", "v"}) {
        io::write_npy(folder / (name + ".npy"), random_array(DType::f32, {4, 200, 16}, 1));
      }
      inputs = folder.names();
    }

    Result attend(const std::string& fail_at, bool on) const {
      return keel(folder, arguments, [&] {
        ::setenv("LD_PRELOAD", KEEL_SCARCE, 1);
        ::setenv("KEEL_FAIL_AT", fail_at.c_str(), 1);
        if (on) ::setenv("KEEL_FAIL_ON", "1", 1);
        if (!count.empty()) ::setenv("KEEL_COUNT", count.c_str(), 1);
        ::alarm(60);  // rather than hang
      });
    }

    // What the run left, each file with its bytes; and nothing of it stays.
    std::map<std::string, io::Buffer> outputs() const {
      std::map<std::string, io::Buffer> found;
      for (const std::string& name : folder.names()) {
        if (inputs.contains(name)) continue;
        found.emplace(name, io::read_file(folder / name));
        std::filesystem::remove(folder / name);
      }
      return found;
    }

    TemporaryFolder folder;
    std::set<std::string> inputs;
    std::string count;  // a file for how many calls there were
    std::vector<std::string> arguments = {"attend", "q.npy", "k.npy",   "v.npy",      "-o",     "out.npy",
                                          "--lse",  "l.npy", "--stats", "stats.json", "--quiet"};
  };

  // Every `step`-th call fails in turn, alone or with all that follow.
  void expect_no_surprise(bool on, long step) {
    Run whole;
    const TemporaryFolder counts;
    whole.count = counts / "calls";
    ASSERT_EQ(whole.attend("0", on).status, 0);
    const auto good = whole.outputs();
    ASSERT_EQ(good.size(), 3u);
    const io::Buffer text = io::read_file(whole.count);
    // Threads make it differ a little from run to run.
    const long calls = std::stol(std::string(reinterpret_cast<const char*>(text.data()), text.size())) + 20;
    EXPECT_GT(calls, 500);
    std::atomic<long> next = 1, failures = 0;
    const auto work = [&] {
      const Run run;
      for (long n = next.fetch_add(step); n <= calls && !HasFailure(); n = next.fetch_add(step)) {
        const Result result = run.attend(std::to_string(n), on);
        const auto left = run.outputs();
        if (result.status == 0) {  // it did without
          EXPECT_EQ(left, good) << n;
          EXPECT_EQ(result.err, "") << n;
          continue;
        }
        ++failures;
        EXPECT_EQ(result.status, 3) << n << ": " << result.err;
        EXPECT_TRUE(is_one_message(result.err)) << n;
        EXPECT_TRUE(left.empty()) << n << ": " << left.begin()->first;
      }
    };
    std::jthread other(work);
    work();
    other.join();
    EXPECT_GT(failures, calls / step / 2);
  }
};

TEST_F(Memory, EachAllocationOfARunMayFail) { expect_no_surprise(/*on=*/false, 1); }

// A few hundred of the points suffice here: what differs from above is what comes after the first failure.
TEST_F(Memory, FromAnyAllocationOnAllMayFail) { expect_no_surprise(/*on=*/true, 7); }

TEST_F(Memory, WithoutThreadsThereIsAMessageOrAResult) {
  const Run run;
  const Result result = keel(run.folder, run.arguments, [] {
    ::setenv("LD_PRELOAD", KEEL_SCARCE, 1);
    ::setenv("KEEL_FAIL_THREADS", "1", 1);
    ::alarm(60);
  });
  if (std::thread::hardware_concurrency() < 2) GTEST_SKIP() << "one processor needs no other thread";
  EXPECT_EQ(result.status, 3);
  EXPECT_TRUE(is_one_message(result.err));
  EXPECT_THAT(result.err, HasSubstr("Resource temporarily unavailable"));
  EXPECT_TRUE(run.outputs().empty());
}

}  // namespace
}  // namespace keel::test
