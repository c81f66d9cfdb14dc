#pragma once

#include <string>
#include <vector>

namespace keel::cli {

// What a learner predicted, and what happened: a file of lines of five columns separated by tabs.
class Notebook {
 public:
  struct Entry {
    std::string date;      // "2026-11-16"
    std::string name;      // of the break
    std::string question;  // its id, or kGuess
    std::string said, was;
    bool right() const { return said == was; }
  };
  static constexpr const char* kGuess = "guess";  // which break it is

  // Reads the file, if there is one. Raises keel::Error that names the line if it is not one of ours.
  explicit Notebook(std::string path);

  // Those of a break made on the last day that has any, in order.
  std::vector<Entry> last_of(const std::string& name, bool guesses) const;
  const std::vector<Entry>& entries() const { return entries_; }

  // Dated today. save() writes the file, and its folder if missing.
  void add(const std::string& name, const std::string& question, const std::string& said, const std::string& was);
  void save() const;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  std::vector<Entry> entries_;
};

}  // namespace keel::cli
