#pragma once

#include "lab/translate/comparison.h"

namespace keel::test {

// `keel lab translate` with every arm, on little data and for a few steps: what it writes, in seconds.
inline lab::Result tiny_comparison(const lab::Settings& settings,
                                   const std::vector<lab::translate::Arm>& arms = lab::translate::arms()) {
  using namespace lab::translate;
  lab::Work work(settings);
  const Task task = make_task(generate_sets(settings.seed, {300, 8, 8, 6}), Units::automatic);
  ComparisonSettings tiny;
  tiny.training = {.steps = 6, .lr = 0.01, .warmup = 2, .points = 2};
  tiny.repeats = settings.repeats;
  tiny.beam_sentences = 2;
  return report_on(compare(work, 1.0, task, tiny, arms), "A little of the grammar");
}

}  // namespace keel::test
