#include "lab/record.h"

#include "io/messages.h"
#include "keel/attention.h"

namespace keel::lab {

Json identity(const Experiment& experiment, const Settings& settings) {
  Json json = {{"keel", version()},
               {"experiment", experiment.name()},
               {"profile", settings.full ? "full" : "quick"},
               {"seed", settings.seed},
               {"repeats", settings.repeats}};
  if (experiment.has_short_form()) {
    json["form"] = settings.short_form ? "short" : "whole";
    Json& options = json["options"] = Json::object();
    for (const auto& [name, value] : settings.options) {
      const auto digest = settings.digests.find(name);
      options[name] = digest == settings.digests.end() ? io::path_text(value) : digest->second;
    }
  }
  return json;
}

Json to_json(const Record& record) {
  Json json = identity(*record.experiment, record.settings);
  json["question"] = record.experiment->question();
  json.update(to_json(record.result));
  return json;
}

Json times_json(const Record& record) {
  Json json = identity(*record.experiment, record.settings);
  json.update(to_json(record.result.times));
  return json;
}

std::vector<Entry> ledger(const std::vector<Record>& records) {
  Measurements measurements;
  std::set<std::string> experiments;
  for (const Record& record : records) {
    // With options it is not what the claims are about: only a part of it, or on other data.
    if (!record.settings.options.empty()) continue;
    experiments.insert(record.experiment->name());
    for (const Findings* part : record.result.parts()) {
      measurements.insert(part->measurements.begin(), part->measurements.end());
    }
  }
  return ledger(measurements, experiments);
}

}  // namespace keel::lab
