#include "lab/folder.h"

#include <fmt/format.h>

#include <filesystem>

#include "io/file.h"
#include "io/messages.h"
#include "keel/error.h"
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
  for (const Figure& figure : record.result.figures) {
    io::write_file(fmt::format("{}-{}.csv", start, figure.id), to_csv(table_of(figure)));
  }
  io::write_file(start + ".json", to_json(record).dump(1) + "\n");
}

std::optional<Record> Folder::load(const Experiment& experiment, const Settings& settings) const {
  const std::string path = fmt::format("{}/{}.json", path_, experiment.name());
  if (!std::filesystem::is_regular_file(path)) return {};
  try {
    const io::Buffer bytes = io::read_file(path);
    const auto* begin = reinterpret_cast<const char*>(bytes.data());
    const Json json = Json::parse(begin, begin + bytes.size());
    const Json expected = identity(experiment, settings);
    for (const auto& [key, value] : expected.items()) {
      if (json.at(key) != value) return {};
    }
    return Record{&experiment, settings, result_from_json(json)};
  } catch (const Json::exception&) {  // not ours, or of another shape: it will be measured again
    return {};
  }
}

void Folder::publish(const std::vector<Record>& records) const {
  const std::vector<Entry> entries = ledger(records);
  io::write_file(path_ + "/claims.json", lab::to_json(entries).dump(1) + "\n");
  io::write_file(path_ + "/claims.csv", to_csv(to_table(entries)));
  io::write_file(report_path(), report(records, entries));
}

}  // namespace keel::lab
