#include "lab/cli/notebook.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <array>
#include <ctime>
#include <filesystem>
#include <sstream>

#include "io/file.h"
#include "io/messages.h"
#include "io/utf8.h"
#include "keel/error.h"

namespace keel::cli {
namespace {

constexpr const char* kHeader = "date\tbreak\tquestion\tsaid\twas";

}  // namespace

Notebook::Notebook(std::string path) : path_(std::move(path)) {
  if (!std::filesystem::exists(path_)) return;
  const io::Buffer bytes = io::read_file(path_);
  std::istringstream lines(std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
  std::size_t number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    std::array<std::string, 5> columns;
    std::istringstream cells(line);
    std::size_t count = 0;
    for (std::string cell; std::getline(cells, cell, '\t'); ++count) {
      if (count < columns.size()) columns[count] = cell;
    }
    const bool text = io::invalid_utf8(line) == std::string::npos && !io::has_control_character(line);
    if (count != columns.size() || !text || (number == 1 && line != kHeader)) {
      throw Error(ErrorCode::bad_file,
                  fmt::format("[lab break] {}, line {}: expected {} columns separated by tabs, the first line naming "
                              "them, got '{}'",
                              io::path_text(path_), number, columns.size(), io::printable(line)));
    }
    if (number > 1) entries_.push_back({columns[0], columns[1], columns[2], columns[3], columns[4]});
  }
}

std::vector<Notebook::Entry> Notebook::last_of(const std::string& name, bool guesses) const {
  std::vector<Entry> last;
  for (const Entry& entry : entries_) {
    if (entry.name != name || (entry.question == kGuess) != guesses) continue;
    if (!last.empty() && last.front().date != entry.date) last.clear();
    // The same question again on the same day is another run.
    for (const Entry& earlier : last) {
      if (!guesses && earlier.question == entry.question) {
        last.clear();
        break;
      }
    }
    last.push_back(entry);
  }
  return last;
}

void Notebook::add(const std::string& name, const std::string& question, const std::string& said,
                   const std::string& was) {
  entries_.push_back({fmt::format("{:%Y-%m-%d}", fmt::gmtime(std::time(nullptr))), name, question, said, was});
}

void Notebook::save() const {
  std::string text = std::string(kHeader) + "\n";
  for (const Entry& e : entries_)
    text += fmt::format("{}\t{}\t{}\t{}\t{}\n", e.date, e.name, e.question, e.said, e.was);
  const std::filesystem::path folder = std::filesystem::path(path_).parent_path();
  std::error_code ignored;  // the file says what is wrong
  if (!folder.empty()) std::filesystem::create_directories(folder, ignored);
  io::write_file(path_, text);
}

}  // namespace keel::cli
