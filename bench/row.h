#pragma once

#include <optional>
#include <string>

#include "bench/case.h"

namespace keel::bench {

// What a row is judged by.
enum class Metric {
  peak_share,       // FLOP/s ÷ those of the FMA loop, or of the matrix unit's if the call uses one
  bandwidth_share,  // bytes of k and v per second ÷ those of reading memory
  update_share,     // bytes read and written per second ÷ those of adding one array to another
  rate,             // speed ÷ that of the baseline
  speedup,          // the same, where more than 1 is expected
  cost,             // time ÷ that of the baseline, minus 1
  call_seconds,     // time of a call
  extra_bytes,      // memory beyond inputs and outputs
};

constexpr bool larger_is_better(Metric metric) {
  return metric == Metric::peak_share || metric == Metric::bandwidth_share || metric == Metric::update_share ||
         metric == Metric::rate || metric == Metric::speedup;
}

// What a command-line option must not change, because the row is about it.
enum class About { nothing, dtype, threads, target, unit };

// A line of the table.
struct Row {
  Case subject;
  Metric metric = Metric::peak_share;
  std::optional<Case> baseline = {};  // measured before and after the subject, if the metric compares
  std::string baseline_name = {};     // as in "0.95 of f32"
  std::optional<double> goal = {};    // at least this, or at most if smaller is better
  About about = About::nothing;
  std::string scenario = {};
};

}  // namespace keel::bench
