#pragma once

#include "core/problem.h"
#include "cpu/merge.h"
#include "runtime/machine.h"

namespace keel {

// How merge() shares its rows among threads; `target` 0 is the best there is.
cpu::MergeTasks plan_merge(const MergeProblem& problem, const Machine& machine, std::int64_t target = 0);

// The call as the kernel wants it; valid as long as the problem.
cpu::MergeCall merge_call(const MergeProblem& problem);

}  // namespace keel
