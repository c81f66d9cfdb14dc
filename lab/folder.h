#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lab/record.h"

namespace keel::lab {

// Where a run leaves what it found:
//   NAME.json            one experiment: its settings, findings, figures and measurements
//   NAME-times.json      for one that depends on a clock: the same for its times
//   NAME-FIGURE.csv      the numbers behind a figure
//   claims.json, .csv    the ledger
//   index.html           the report
//   picture.svg          what the scaling does, in one picture
// Every file appears complete or not at all. Failures raise keel::Error (ErrorCode::io).
class Folder {
 public:
  // Created if missing. Checked here to be writable, before any work.
  explicit Folder(std::string path);

  void save(const Record& record) const;

  // What an earlier run of this version of Keel left, with the same profile, seed and repeats.
  std::optional<Record> load(const Experiment& experiment, const Settings& settings) const;

  // The ledger and the report on these.
  void publish(const std::vector<Record>& records) const;

  std::string report_path() const { return path_ + "/index.html"; }

 private:
  std::string path_;
};

}  // namespace keel::lab
