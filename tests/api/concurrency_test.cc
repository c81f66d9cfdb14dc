// Calls that run side by side, each of them on several threads.
#include <gtest/gtest.h>

#include <cmath>
#include <thread>
#include <vector>

#include "keel/keel.h"

namespace keel {
namespace {

constexpr std::int64_t kHeads = 3, kRows = 200, kSize = 32;

std::vector<float> result(int caller) {
  std::vector<float> qkv(kHeads * kRows * kSize), out(qkv.size());
  for (std::size_t i = 0; i < qkv.size(); ++i) qkv[i] = std::sin(static_cast<float>(i * (caller + 1)));
  const TensorView x = view(qkv.data(), {1, kHeads, kRows, kSize});
  attention(x, x, x, view(out.data(), {1, kHeads, kRows, kSize}), {.causal = Causal::top_left, .threads = 2});
  return out;
}

TEST(Concurrency, CallsAtOnceGiveTheBitsOfOneAlone) {
  constexpr int kCallers = 6;
  std::vector<std::vector<float>> together(kCallers);
  std::vector<std::thread> threads;
  for (int caller = 0; caller < kCallers; ++caller) {
    threads.emplace_back([&together, caller] {
      for (int repeat = 0; repeat < 5; ++repeat) together[caller] = result(caller);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (int caller = 0; caller < kCallers; ++caller) EXPECT_EQ(together[caller], result(caller)) << "caller " << caller;
}

}  // namespace
}  // namespace keel
