#include "plan/merge_plan.h"

#include <algorithm>

namespace keel {
namespace {

constexpr std::int64_t kTaskBytes = 256 << 10;   // read and written by a task: many times what starting one costs
constexpr std::int64_t kAloneBytes = 512 << 10;  // a thread is done with so many before another has begun

}  // namespace

cpu::MergeTasks plan_merge(const MergeProblem& problem, const Machine& machine, std::int64_t target) {
  std::int64_t row_bytes = problem.out.shape[3] * size_of(problem.out.dtype);
  for (const Partial& part : problem.parts) row_bytes += part.out.shape[3] * size_of(part.out.dtype) + 8;
  const std::int64_t row_block = std::max<std::int64_t>(kTaskBytes / row_bytes, 1);
  const bool alone = problem.rows <= kAloneBytes / row_bytes;
  return {.target = target != 0 ? target : machine.target_bits.front(),
          .row_block = row_block,
          .threads = alone                 ? 1
                     : problem.threads > 0 ? problem.threads
                                           : machine.threads};
}

cpu::MergeCall merge_call(const MergeProblem& problem) {
  return {problem.parts.data(), std::ssize(problem.parts), problem.out, problem.outputs};
}

}  // namespace keel
