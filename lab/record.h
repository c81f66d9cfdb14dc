#pragma once

#include <vector>

#include "lab/claims/claims.h"
#include "lab/experiment.h"

namespace keel::lab {

// An experiment that was run.
struct Record {
  const Experiment* experiment = nullptr;
  Settings settings;
  Result result;
};

// What makes two runs of an experiment the same run: version of Keel, name, profile, seed, repeats, options; for an
// option that names a file, the file's content, whatever its name.
Json identity(const Experiment& experiment, const Settings& settings);

// NAME.json: everything but the times, so that the same run gives the same bytes.
Json to_json(const Record& record);
// NAME-times.json.
Json times_json(const Record& record);

// The ledger of what was run.
std::vector<Entry> ledger(const std::vector<Record>& records);

}  // namespace keel::lab
