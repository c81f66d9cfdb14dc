// keel lab break: attention broken in one line; predict, run, compare, and learn why.
#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <iostream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "cli/common/arguments.h"
#include "cli/common/progress.h"
#include "cli/common/terminal.h"
#include "io/file.h"
#include "io/messages.h"
#include "keel/error.h"
#include "lab/breaks/breaks.h"
#include "lab/cli/commands.h"
#include "lab/result.h"
#include "lab/statistics.h"

namespace keel::cli {
namespace {

using lab::Break;
using lab::Change;
using lab::Observed;
using Json = nlohmann::ordered_json;
using Predictions = std::map<std::string, Change>;  // by the question's id

constexpr const char* kExamples =
    "Without NAME it lists the breaks. Predictions are asked for one by one: less, same or more, for the\n"
    "broken version against the healthy one. FILE has lines such as 'largest-weight: more'.\n"
    "\n"
    "Examples:\n"
    "  keel lab break no-scale\n"
    "  keel lab break no-scale --no-predict --hints 2\n"
    "  printf 'more\\nmore\\n' | keel lab break softmax-over-queries\n";

constexpr std::size_t kWidth = 98;

std::optional<Change> change_by_name(const std::string& text) {
  for (const Change change : {Change::less, Change::same, Change::more}) {
    if (text == lab::name_of(change) || text == lab::name_of(change).substr(0, 1)) return change;
  }
  return {};
}

std::string trimmed(const std::string& text) {
  const char* blank = " \t\r";
  const auto begin = text.find_first_not_of(blank);
  return begin == std::string::npos ? "" : text.substr(begin, text.find_last_not_of(blank) - begin + 1);
}

Predictions predictions_from(const std::string& path, const Break& what) {
  const io::Buffer bytes = io::read_file(path);
  std::string text(reinterpret_cast<const char*>(bytes.data()), bytes.size()), ids;
  for (const lab::Question& q : what.questions) ids += (ids.empty() ? "" : ", ") + q.id;
  Predictions predictions;
  for (std::size_t number = 1; !text.empty(); ++number) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string line = trimmed(text.substr(0, end));
    text.erase(0, end + 1);
    if (line.empty() || line.starts_with('#')) continue;
    const std::size_t colon = line.find(':');
    const std::string id = trimmed(line.substr(0, colon));
    const auto said = colon == std::string::npos ? std::nullopt : change_by_name(trimmed(line.substr(colon + 1)));
    const auto known = [&](const lab::Question& q) { return q.id == id; };
    if (!said || std::none_of(what.questions.begin(), what.questions.end(), known)) {
      throw Error(ErrorCode::bad_file,
                  fmt::format("[lab break] {}, line {}: expected one of {}, a colon, and less, same or more, got '{}'",
                              io::path_text(path), number, ids, io::path_text(line.substr(0, 60))));
    }
    predictions[id] = *said;
  }
  return predictions;
}

// A line of stdin, after printing `prompt`; nothing at the end of input.
std::optional<std::string> ask(const std::string& prompt) {
  fmt::print("{}", prompt);
  std::fflush(stdout);
  std::string line;
  if (!std::getline(std::cin, line)) {
    fmt::print("\n");
    return {};
  }
  if (::isatty(STDIN_FILENO) == 0) fmt::print("{}\n", io::path_text(line));  // as a terminal would show it
  return trimmed(line);
}

Predictions asked(const Break& what) {
  fmt::print("What will the broken version show, against the healthy one? less, same or more; Enter to pass.\n");
  Predictions predictions;
  for (const lab::Question& question : what.questions) {
    for (;;) {
      const auto answer = ask(fmt::format("  {}? ", question.text));
      if (!answer) return predictions;
      if (answer->empty()) break;
      if (const auto said = change_by_name(*answer)) {
        predictions[question.id] = *said;
        break;
      }
      if (::isatty(STDIN_FILENO) == 0) {
        throw Error(ErrorCode::bad_file, fmt::format("[lab break] stdin: expected less, same or more, got '{}'",
                                                     io::path_text(answer->substr(0, 60))));
      }
      fmt::print("  less, same or more, please\n");
    }
  }
  return predictions;
}

std::string spread(const std::vector<double>& values) {
  const double sd = lab::standard_deviation(values);
  return lab::number_text(lab::mean(values)) + (sd > 0 ? fmt::format(" ± {:.2g}", sd) : "");
}

std::vector<Observed> observe(const Break& what, std::uint64_t seed) {
  struct Watching : lab::Observer {
    Progress line{true};
    void progress(double share) override { line.show("running both versions", share); }
  } observer;
  lab::Work work({.full = false, .seed = seed, .repeats = 0, .threads = 0}, observer);
  return what.run(work);
}

class BreakIt {
 public:
  void add_to(CLI::App& command) {
    command.add_option("break", name_, "Which break; lists them if absent")->type_name("NAME")->check(kNotEmpty);
    auto* file = command.add_option("--predict", predict_, "Predictions from a file, instead of asking")
                     ->type_name("FILE")
                     ->check(kNotEmpty);
    command.add_flag("--no-predict", no_predict_, "Ask for no predictions")->excludes(file);
    command.add_option("--hints", hints_, "Show this many hints without being asked")
        ->type_name("N")
        ->check(CLI::NonNegativeNumber);
    command.add_option("--seed", seed_, "Seed of the random numbers")->type_name("N")->check(kNotEmpty);
    command.add_flag("--json", json_, "Print everything as JSON; asks for nothing");
    command.footer(kExamples);
  }

  void run() const {
    if (name_.empty()) return list();
    const Break* what = lab::find_break(name_);
    if (what == nullptr) {
      std::string known;
      for (const Break& b : lab::breaks()) known += (known.empty() ? "" : ", ") + b.name;
      throw CLI::ValidationError("break", fmt::format("expected one of {}, got '{}'", known, name_));
    }
    const std::uint64_t seed = seed_.empty() ? 0 : seed_number(seed_);
    Predictions predictions;
    if (!predict_.empty()) predictions = predictions_from(predict_, *what);
    if (json_) return print_json(*what, predictions, observe(*what, seed));
    fmt::print("{}\n{}\n\nOne line changes:\n  - {}\n  + {}\n\n", bold(what->name), wrapped(what->summary, kWidth, 0),
               what->before, what->after);
    if (predict_.empty() && !no_predict_) predictions = asked(*what);
    fmt::print("\n");
    std::fflush(stdout);
    show(*what, predictions, observe(*what, seed));
    give_hints(*what);
    fmt::print("{}\n{}\n\n{}\n{}\n", bold("Cause"), wrapped(what->cause, kWidth, 0), bold("Fix"),
               wrapped(what->fix, kWidth, 0));
  }

 private:
  void list() const {
    if (json_) {
      Json all = Json::array();
      for (const Break& b : lab::breaks()) all.push_back({{"name", b.name}, {"summary", b.summary}});
      fmt::print("{}\n", all.dump(2));
      return;
    }
    for (const Break& b : lab::breaks())
      fmt::print("{}  {}\n", bold(fmt::format("{:<25}", b.name)), wrapped(b.summary, 72, 27));
  }

  static void show(const Break& what, const Predictions& predictions, const std::vector<Observed>& found) {
    std::size_t right = 0;
    for (std::size_t i = 0; i < found.size(); ++i) {
      const auto said = predictions.find(what.questions[i].id);
      const Change change = found[i].change();
      const bool made = said != predictions.end();
      if (made && said->second == change) ++right;
      fmt::print("{}\n  healthy {:<18} broken {:<18} {}{}\n", what.questions[i].text, spread(found[i].healthy),
                 spread(found[i].broken), bold(lab::name_of(change)),
                 made ? fmt::format("   you said {}", lab::name_of(said->second)) : "");
    }
    if (!predictions.empty()) fmt::print("\n{} of {} predictions were right.\n", right, predictions.size());
    fmt::print("\n");
  }

  // Those of --hints at once; then one at a time on request.
  void give_hints(const Break& what) const {
    for (std::size_t i = 0; i < what.hints.size(); ++i) {
      if (i >= hints_) {
        if (no_predict_ || !predict_.empty()) break;  // not interactive
        const auto answer = ask("h for a hint, Enter for the cause: ");
        if (!answer || !answer->starts_with('h')) break;
      }
      fmt::print("Hint {} of {}: {}\n", i + 1, what.hints.size(), wrapped(what.hints[i], kWidth - 13, 13));
    }
    fmt::print("\n");
  }

  static void print_json(const Break& what, const Predictions& predictions, const std::vector<Observed>& found) {
    Json observations = Json::array();
    for (std::size_t i = 0; i < found.size(); ++i) {
      const auto said = predictions.find(what.questions[i].id);
      observations.push_back({{"id", what.questions[i].id},
                              {"quantity", what.questions[i].text},
                              {"healthy", found[i].healthy},
                              {"broken", found[i].broken},
                              {"change", lab::name_of(found[i].change())},
                              {"predicted", said == predictions.end() ? Json() : Json(lab::name_of(said->second))}});
    }
    const Json printed = {
        {"name", what.name},   {"before", what.before}, {"after", what.after}, {"observations", observations},
        {"hints", what.hints}, {"cause", what.cause},   {"fix", what.fix}};
    fmt::print("{}\n", printed.dump(2));
  }

  std::string name_, predict_, seed_;
  bool no_predict_ = false, json_ = false;
  std::size_t hints_ = 0;
};

}  // namespace

CLI::App* add_break(CLI::App& lab) {
  CLI::App* command = lab.add_subcommand("break", "Attention broken in one line: predict, run, compare, learn why");
  const auto exercise = std::make_shared<BreakIt>();
  exercise->add_to(*command);
  command->callback([exercise] { exercise->run(); });
  return command;
}

}  // namespace keel::cli
