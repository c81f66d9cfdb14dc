#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "bench/measure.h"

namespace keel::cli {

// The machine's limits in this run, and one line per row.
std::string bench_table(const bench::Measurements& measurements);

// The same with every repeat, and the machine's facts. Rates are in FLOP/s and bytes/s, times in seconds.
nlohmann::ordered_json bench_json(const bench::Measurements& measurements, const bench::Procedure& procedure,
                                  bool quick);

}  // namespace keel::cli
