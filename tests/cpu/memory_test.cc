// Calls touch no memory but their arrays': each of them, inputs and outputs alike, ends where a page begins that faults
// when touched, or begins where such a page ends.
#include <gtest/gtest.h>
#include <hwy/targets.h>
#include <unistd.h>

#include <csignal>
#include <cstring>

#include "conformance/generator.h"
#include "conformance/random.h"
#include "conformance/table.h"
#include "cpu/forced.h"
#include "cpu/on_target.h"

namespace keel {
namespace {

using conformance::Case;
using conformance::Placement;

// A fault ends the program. Says beforehand which problem it was.
class FaultReport {
 public:
  FaultReport() {
    struct sigaction action {};
    action.sa_handler = [](int) {
      static_cast<void>(!write(STDERR_FILENO, problem_, std::strlen(problem_)));
      sigaction(SIGSEGV, &before_, nullptr);  // which the same fault meets again
    };
    sigaction(SIGSEGV, &action, &before_);
  }
  FaultReport(const FaultReport&) = delete;
  ~FaultReport() { sigaction(SIGSEGV, &before_, nullptr); }

  void about(const std::string& problem) {
    std::strncpy(problem_, ("\nTouched memory that is not the call's: " + problem + "\n").c_str(),
                 sizeof(problem_) - 1);
  }

 private:
  static inline char problem_[4096] = {};
  static inline struct sigaction before_ {};
};

void expect_nothing_beside_touched(const Case& c, Placement placement, const Forced& forward, const Forced& backward) {
  const conformance::Instance instance(c, placement);
  const conformance::ForwardMemory memory = instance.forward_memory();
  run_forced(instance.q(), instance.k(), instance.v(), memory.out_view(), instance.options(), memory.outputs(),
             forward);
  EXPECT_EQ(memory.outside_writes(), "") << describe(c);
  if (!c.gradients) return;
  const conformance::GradientMemory gradients = instance.gradient_memory();
  run_forced(instance.backward_inputs(), gradients.gradients(), instance.options(), backward);
  EXPECT_EQ(gradients.outside_writes(), "") << describe(c);
}

// One of the targets, with its own tiles or small ones, which cross every boundary.
void expect_nothing_beside_touched(const Case& c, std::uint64_t seed, FaultReport& report) {
  conformance::Generator random(seed, 0x6A6E);
  const auto& targets = machine().target_bits;
  const std::int64_t target = targets[static_cast<std::size_t>(random.integer(0, std::ssize(targets) - 1))];
  const Placement placement = seed % 2 == 0 ? Placement::before_page : Placement::after_page;
  report.about(describe(c) + ", on " + hwy::TargetName(target) + (seed % 2 == 0 ? ", before" : ", after") + " a page");
  const Forced planned = {.target = target};
  const Forced whole = {.target = target, .tiles = {12, 64, 128}, .split_keys = false};
  const Forced split = {.target = target, .tiles = {24, 64, 64}, .split_keys = true, .share_small = true};
  const Forced choices[] = {planned, whole, split};
  expect_nothing_beside_touched(c, placement, random.pick(choices), random.pick(choices));
}

TEST(Memory, TableTouchesNothingOutsideItsArrays) {
  FaultReport report;
  for (const Case& c : conformance::table()) {
    for (const std::uint64_t side : {0, 1}) expect_nothing_beside_touched(c, 2 * c.seed + side, report);
  }
}

TEST(Memory, RandomProblemsTouchNothingOutsideTheirArrays) {
  FaultReport report;
  for (std::uint64_t seed = 0; seed < random_problems(2000); ++seed) {
    expect_nothing_beside_touched(conformance::random_case(seed), seed, report);
  }
}

}  // namespace
}  // namespace keel
