#pragma once

#include <vector>

#include "cpu/merge.h"
#include "plan/plan.h"

namespace keel::cpu {

struct MergePlan : PlannedCall {
  std::vector<Partial> parts;
  MergeCall call;  // of these parts
  std::int64_t rows = 0;
  MergeTasks tasks;  // how rows are shared among threads

  void execute() const override { run_merge(call, rows, tasks); }
  std::vector<std::pair<std::string, std::string>> facts() const override;
};

void plan_merge(const MergeProblem& problem, const Planning& planning, Plan& plan);

}  // namespace keel::cpu
