#pragma once

#include <functional>

#include "lab/translate/arms.h"
#include "lab/translate/task.h"
#include "lab/work.h"

namespace keel::lab::translate {

// What `keel lab translate` can be told beyond the lab's own settings (Settings::options).
class TranslateOptions {
 public:
  // Raises keel::Error for an unknown arm or kind of vocabulary.
  explicit TranslateOptions(const Settings& settings);

  // Records the content of the files that the settings name, so that a run on other content is another run. Raises
  // keel::Error if one cannot be read.
  static void take_digests(Settings& settings);

  std::string data;    // a file of pairs; empty for the grammar's
  std::string digest;  // of its content when the run began; empty if not recorded
  std::string arm;     // empty for all
  Units units = Units::automatic;
  bool few = false;  // only the arms of the short form

  std::vector<Arm> arms() const;
};

struct Loaded {
  Task task;
  std::string data;                // what the sentences are, in words
  std::vector<std::string> notes;  // about lines that were left out
};

// `progress` as in read_pairs().
Loaded load_task(const TranslateOptions& options, const SetSizes& sizes, std::uint64_t seed,
                 const std::function<void(double)>& progress);

}  // namespace keel::lab::translate
