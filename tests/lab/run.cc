#include "run.h"

#include "lab/translate/tiny.h"

namespace keel::test {

lab::Record run(const std::string& name, const lab::Settings& settings) {
  const lab::Experiment* experiment = lab::find_experiment(name);
  if (experiment->has_short_form()) return {experiment, settings, tiny_comparison(settings)};  // it takes minutes
  lab::Work work(settings);
  return {experiment, settings, experiment->run(work)};
}

const std::vector<lab::Record>& everything() {
  static const std::vector<lab::Record> records = [] {
    std::vector<lab::Record> all;
    for (const auto& experiment : lab::experiments()) {
      all.push_back(
          run(experiment->name(), {.full = false, .seed = 7, .repeats = kRepeats, .threads = 0, .brief = true}));
    }
    return all;
  }();
  return records;
}

const lab::Measurements& measurements() {
  static const lab::Measurements all = [] {
    lab::Measurements joined;
    for (const auto& record : everything()) {
      for (const lab::Findings* part : record.result.parts()) {
        joined.insert(part->measurements.begin(), part->measurements.end());
      }
    }
    return joined;
  }();
  return all;
}

}  // namespace keel::test
