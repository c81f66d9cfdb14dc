// A child that is forked while another thread computes. It has that thread's locks, as they stood, but not the thread.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <thread>
#include <vector>

#include "keel/keel.h"

namespace keel {
namespace {

using std::chrono::microseconds;

constexpr std::int64_t kHeads = 8, kRows = 128, kSize = 32;

std::vector<float> compute() {
  std::vector<float> qkv(kHeads * kRows * kSize), out(qkv.size());
  for (std::size_t i = 0; i < qkv.size(); ++i) qkv[i] = std::sin(static_cast<float>(i));
  const TensorView x = view(qkv.data(), {1, kHeads, kRows, kSize});
  attention(x, x, x, view(out.data(), {1, kHeads, kRows, kSize}), {.threads = 4});
  return out;
}

constexpr int kHangs = -1;

// Forks; the exit status of work() in the child, or kHangs.
template <class Work>
int status_in_child(Work work) {
  const pid_t child = fork();
  if (child == 0) {
    signal(SIGALRM, SIG_DFL);
    alarm(30);
    work();
    _exit(3);  // which work() has not done
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : kHangs;
}

// Before anything else of this program has computed: the first call finds out about the machine.
TEST(Fork, DuringTheFirstCallOfAllTheChildComputes) {
  for (int round = 0; round < 60; ++round) {
    const int status = status_in_child([round] {
      std::atomic<bool> begun = false;
      std::thread([&] {
        begun = true;
        compute();
      }).detach();
      while (!begun) continue;
      std::this_thread::sleep_for(microseconds(10 * round));
      _exit(status_in_child([] { _exit(compute().empty() ? 1 : 0); }) == 0 ? 0 : 1);
    });
    ASSERT_EQ(status, 0) << "round " << round;
  }
}

class ForkWhileComputing : public testing::Test {
 protected:
  void SetUp() override {
    expected_ = compute();
    computing_ = std::thread([this] {
      while (!stop_) EXPECT_EQ(compute(), expected_);
    });
  }
  void TearDown() override {
    stop_ = true;
    computing_.join();
  }

  std::vector<float> expected_;
  std::atomic<bool> stop_ = false;
  std::thread computing_;
};

TEST_F(ForkWhileComputing, TheChildComputesTheSameBits) {
  for (int round = 0; round < 100; ++round) {
    ASSERT_EQ(status_in_child([&] { _exit(compute() == expected_ ? 0 : 1); }), 0) << "round " << round;
  }
}

TEST_F(ForkWhileComputing, SoDoesItsOwnChild) {
  for (int round = 0; round < 20; ++round) {
    ASSERT_EQ(status_in_child([&] { _exit(status_in_child([&] { _exit(compute() == expected_ ? 0 : 1); })); }), 0)
        << "round " << round;
  }
}

}  // namespace
}  // namespace keel
