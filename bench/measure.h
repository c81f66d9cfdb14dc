#pragma once

#include <array>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "bench/row.h"
#include "bench/yardsticks.h"
#include "plan/plan.h"

namespace keel::bench {

struct Procedure {
  int repeats = 15;
  double sample_seconds = 0.02;     // short calls are repeated until a sample lasts this long
  double yardstick_seconds = 0.02;  // of the FMA loop
  std::int64_t target = 0;          // of the FMA rates that every run reports; 0 is the best available
  std::uint64_t seed = 0;
};

// One visit to a row. Back to back: yardstick, baseline, subject, baseline, yardstick.
struct Repeat {
  double seconds = 0;                                          // per call of the subject
  std::array<double, 2> yardstick{};                           // before and after: FLOP/s, or bytes/s
  std::optional<std::array<double, 2>> baseline_seconds = {};  // before and after
  double yardstick_share = 0;                                  // ÷ the mean of the two
  double value = 0;                                            // of the row's metric
};

struct Result {
  Row row;
  std::string skipped;   // why nothing was measured; empty otherwise
  std::string plan;      // of the subject, as text
  bool by_unit = false;  // its products are those of the matrix unit
  int threads = 1;
  std::int64_t target = 0, workspace_bytes = 0;
  double flops = 0, bytes = 0;  // bytes: of k and v, or what a merge reads and writes
  std::int64_t calls = 1;       // per sample
  std::optional<std::int64_t> resident_growth;
  std::vector<Repeat> repeats;
};

// The metric of the fastest call relative to the fastest yardstick or baseline of all repeats: what an idle machine
// would show, while the median shows this one.
double fastest_value(const Result& result);

struct Measurements {
  std::vector<Result> results;  // in the order of the rows
  Yardsticks yardsticks;
  double seconds = 0;  // the whole run
};

// Called before each visit with what comes next and the share of the time that has passed; 0 until a first round has
// shown how long rows take.
using Progress = std::function<void(const std::string& what, double share)>;

// Measures all rows in rounds: every row is visited once in each, so that a disturbance of some seconds affects
// one repeat of many rows and not all repeats of one. The first round is for warming up and is discarded. Rows of
// Metric::extra_bytes are visited once, before all others, while no scratch memory is kept from earlier calls.
Measurements measure(const std::vector<Row>& rows, const Procedure& procedure, const Progress& progress);

}  // namespace keel::bench
