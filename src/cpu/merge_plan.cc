#include "cpu/merge_plan.h"

#include <hwy/base.h>
#include <hwy/targets.h>

#include <algorithm>

#include "core/message.h"

namespace keel::cpu {
namespace {

constexpr std::int64_t kTaskBytes = 256 << 10;   // at least, per task: many times the cost of starting one
constexpr std::int64_t kTasksPerThread = 8;      // at most: the hardware prefetches best along one long piece
constexpr std::int64_t kAloneBytes = 512 << 10;  // a thread is done with this many before another has begun

}  // namespace

void plan_merge(const MergeProblem& problem, const Planning& planning, Plan& plan) {
  const Machine& machine = *planning.resources.machine;
  std::int64_t row_bytes = problem.out.shape[3] * size_of(problem.out.dtype);
  for (const Partial& part : problem.parts) row_bytes += part.out.shape[3] * size_of(part.out.dtype) + 8;
  const bool alone = problem.rows <= kAloneBytes / row_bytes && !planning.forced.share_small;
  MergePlan& part = plan.emplace<MergePlan>();
  part.parts = problem.parts;
  part.call = {part.parts.data(), std::ssize(part.parts), problem.out, problem.outputs};
  part.rows = problem.rows;
  part.tasks.target = planning.forced.target != 0 ? planning.forced.target : machine.target_bits.front();
  part.tasks.threads = alone ? 1 : problem.threads > 0 ? problem.threads : machine.threads;
  part.tasks.row_block = planning.forced.tiles.row_block;
  if (part.tasks.row_block == 0) {
    const std::int64_t least = std::max<std::int64_t>(kTaskBytes / row_bytes, 1);
    part.tasks.row_block = std::max(least, hwy::DivCeil(problem.rows, part.tasks.threads * kTasksPerThread));
  }
  plan.kernel = "merge";
  plan.threads = part.tasks.threads;
  plan.tasks = hwy::DivCeil(part.rows, part.tasks.row_block);
}

std::vector<std::pair<std::string, std::string>> MergePlan::facts() const {
  return {{"target", hwy::TargetName(tasks.target)}, {"tiles", concat(tasks.row_block, " rows")}};
}

}  // namespace keel::cpu
