#pragma once

#include <vector>

#include "core/problem.h"
#include "cuda/plain_merge.h"

// A validated merge as its kernels take it.
namespace keel::cuda {

inline std::vector<MergePart> merge_parts(const MergeProblem& problem) {
  std::vector<MergePart> parts;
  for (const Partial& p : problem.parts) {
    parts.push_back({.out = strided(p.out),
                     .lse = strided(p.lse),
                     .max_logit = strided(p.max_logit),
                     .entropy = strided(p.entropy),
                     .max_weight = strided(p.max_weight),
                     .logit_mean = strided(p.logit_mean),
                     .logit_var = strided(p.logit_var),
                     .visible = strided(p.visible),
                     .logit_count = strided(p.logit_count)});
  }
  return parts;
}

inline MergeCall merge_call(const MergeProblem& problem) {
  const auto& shape = problem.out.shape;
  const Outputs& o = problem.outputs;
  return {.dtype = problem.out.dtype,
          .batch = shape[0],
          .heads = shape[1],
          .n_q = shape[2],
          .d_v = shape[3],
          .count = static_cast<std::int64_t>(problem.parts.size()),
          .result = {.out = strided(problem.out),
                     .lse = strided(o.lse),
                     .max_logit = strided(o.max_logit),
                     .entropy = strided(o.entropy),
                     .max_weight = strided(o.max_weight),
                     .logit_mean = strided(o.logit_mean),
                     .logit_var = strided(o.logit_var),
                     .visible = strided(o.visible),
                     .logit_count = strided(o.logit_count)}};
}

}  // namespace keel::cuda
