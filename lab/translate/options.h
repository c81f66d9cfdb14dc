#pragma once

#include <functional>

#include "lab/translate/arms.h"
#include "lab/translate/task.h"
#include "lab/work.h"

namespace keel::lab::translate {

// What `keel lab translate` can be told beyond the lab's own settings (Settings::options).
class TranslateOptions {
 public:
  // Raises keel::Error for an arm or a kind of vocabulary that there is not.
  explicit TranslateOptions(const Settings& settings);

  // Notes what the files that the settings name hold, so that a run on another content is another run. Raises
  // keel::Error where one cannot be read.
  static void take_digests(Settings& settings);

  std::string data;    // a file of pairs; empty for the grammar's
  std::string digest;  // of what it held as the run began; empty where nobody noted it
  std::string arm;     // empty for all
  Units units = Units::automatic;

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
