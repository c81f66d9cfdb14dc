#include "lab/folder.h"

#include <fmt/format.h>

#include <filesystem>

#include "io/file.h"
#include "io/messages.h"
#include "keel/error.h"
#include "lab/report/picture.h"
#include "lab/report/report.h"

namespace keel::lab {
Folder::Folder(std::string path) : path_(std::move(path)) {
  while (path_.size() > 1 && path_.ends_with('/')) path_.pop_back();
  std::error_code error;
  std::filesystem::create_directories(path_, error);
  if (!std::filesystem::is_directory(path_)) {
    throw Error(ErrorCode::io, fmt::format("[lab] {}: expected a folder to write in, got \"{}\"", io::path_text(path_),
                                           error ? error.message() : "not a folder"));
  }
  io::OutputFile trial(report_path());
  trial.write("tried");  // and never committed
}

void Folder::save(const Record& record) const {
  const std::string start = fmt::format("{}/{}", path_, record.experiment->name());
  for (const Findings* part : record.result.parts()) {
    for (const Figure& figure : part->figures) {
      io::write_file(fmt::format("{}-{}.csv", start, figure.id), to_csv(table_of(figure)));
    }
  }
  if (!record.result.times.empty()) io::write_file(start + "-times.json", times_json(record).dump(1) + "\n");
  io::write_file(start + ".json", to_json(record).dump(1) + "\n");
}

std::optional<Record> Folder::load(const Experiment& experiment, const Settings& settings) const {
  const std::string start = fmt::format("{}/{}", path_, experiment.name());
  // Nothing if the file is missing, or from another run.
  const auto read = [&](const std::string& path) -> std::optional<Json> {
    if (!std::filesystem::is_regular_file(path)) return {};
    const io::Buffer bytes = io::read_file(path);
    const auto* begin = reinterpret_cast<const char*>(bytes.data());
    const Json json = Json::parse(begin, begin + bytes.size());
    const Json expected = identity(experiment, settings);
    for (const auto& [key, value] : expected.items()) {
      if (json.at(key) != value) return {};
    }
    return json;
  };
  try {
    const auto json = read(start + ".json");
    if (!json) return {};
    Record record{&experiment, settings, result_from_json(*json)};
    if (json->at("timed").get<bool>()) {
      const auto times = read(start + "-times.json");
      if (!times) return {};
      record.result.times = findings_from_json(*times);
    }
    return record;
  } catch (const Json::exception&) {  // not ours, or of another shape: it will be measured again
    return {};
  }
}

void Folder::publish(const std::vector<Record>& records) const {
  const std::vector<Entry> entries = ledger(records);
  io::write_file(path_ + "/claims.json", lab::to_json(entries).dump(1) + "\n");
  io::write_file(path_ + "/claims.csv", to_csv(to_table(entries)));
  io::write_file(report_path(), report(records, entries));
  if (const std::string svg = picture(records); !svg.empty()) io::write_file(path_ + "/picture.svg", svg);
}

}  // namespace keel::lab
