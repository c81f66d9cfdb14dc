// Where a call's threads come from: oneTBB's, unless the library was built without it, or a team's.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "keel/keel.h"
#include "runtime/machine.h"

namespace keel {
namespace {

using testing::HasSubstr;

// What explain() says of a call that is worth two threads.
std::string plan_for_two() {
  constexpr std::int64_t kHeads = 4, kLength = 256, kSize = 64;
  std::vector<float> x(kHeads * kLength * kSize);
  const MutableTensorView all = view(x.data(), {1, kHeads, kLength, kSize});
  return explain(all, all, all, all, {.threads = 2});
}

void run_alone(void (*work)(void*), void* data, unsigned, unsigned) { work(data); }

TEST(Threads, AreAsManyInThePlanAsWillWork) {
  use_team({});
  if (machine().own_threads) {
    EXPECT_THAT(plan_for_two(), HasSubstr("threads    2\n"));
  } else {
    EXPECT_THAT(plan_for_two(), HasSubstr("threads    1\n"));
    EXPECT_THAT(plan_for_two(), HasSubstr("built without oneTBB"));
  }
  use_team({run_alone, [] { return 2; }});
  EXPECT_THAT(plan_for_two(), HasSubstr("threads    2\n"));
  use_team({});
}

}  // namespace
}  // namespace keel
