#include "runtime/workspace.h"

#include <gtest/gtest.h>
#include <malloc.h>

#include <thread>

namespace keel {
namespace {

constexpr std::int64_t kBytes = 8 << 20;

std::size_t bytes_in_use() {
  const struct mallinfo2 info = mallinfo2();
  return info.uordblks + info.hblkhd;
}

TEST(Workspace, IsKeptForTheNextCallAndGrows) {
  std::byte* const first = thread_workspace(1000);
  first[999] = std::byte{1};
  EXPECT_EQ(thread_workspace(10), first);
  thread_workspace(kBytes)[kBytes - 1] = std::byte{1};
}

TEST(Workspace, IsFreedWhenItsThreadEnds) {
  const std::size_t before = bytes_in_use();
  for (int i = 0; i < 8; ++i) {
    std::jthread([] {
      thread_workspace(kBytes / 2);
      thread_workspace(kBytes)[0] = std::byte{1};
    }).join();
  }
  EXPECT_LT(bytes_in_use(), before + kBytes);
}

}  // namespace
}  // namespace keel
