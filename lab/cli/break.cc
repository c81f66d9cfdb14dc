// keel lab break: attention broken in one line; predict, run, compare, and learn why. Or find the line.
#include <fmt/format.h>

#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>

#include "cli/common/arguments.h"
#include "cli/common/terminal.h"
#include "io/file.h"
#include "io/messages.h"
#include "keel/error.h"
#include "lab/breaks/breaks.h"
#include "lab/cli/commands.h"
#include "lab/cli/exercise.h"

namespace keel::cli {
namespace {

using lab::Break;
using lab::Change;
using lab::Observed;
using Json = nlohmann::ordered_json;
using Predictions = std::map<std::string, Change>;  // by the question's id

constexpr const char* kBreakExamples =
    "Without NAME it lists the breaks. Predictions are asked for one by one: less, same or more, for the\n"
    "broken version against the healthy one. The file of --predict has lines such as 'largest-weight: more'.\n"
    "Predictions and guesses are kept in the notebook, and shown again next time.\n"
    "\n"
    "Examples:\n"
    "  keel lab break --blind                  symptoms first: find the line\n"
    "  keel lab break no-scale\n"
    "  keel lab break no-scale --no-predict --hints 2\n"
    "  printf 'more\\nmore\\n' | keel lab break softmax-over-queries\n";

std::optional<Change> change_by_name(const std::string& text) {
  for (const Change change : {Change::less, Change::same, Change::more}) {
    if (text == lab::name_of(change) || text == lab::name_of(change).substr(0, 1)) return change;
  }
  return {};
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
      if (!is_interactive()) {
        throw Error(ErrorCode::bad_file, fmt::format("[lab break] stdin: expected less, same or more, got '{}'",
                                                     io::path_text(answer->substr(0, 60))));
      }
      fmt::print("  less, same or more, please\n");
    }
  }
  return predictions;
}

struct Both {
  lab::Seen healthy, broken;
};
Both run_both(const Break& which, std::uint64_t seed) {
  lab::Seen healthy = run_version(which, lab::Version::healthy, seed, "running the healthy version");
  return {std::move(healthy), run_version(which, lab::Version::broken, seed, "running the broken version")};
}

class BreakIt {
 public:
  void add_to(CLI::App& command) {
    command.add_option("break", name_, "Which break; without it, list them")->type_name("NAME")->check(kNotEmpty);
    auto* file = command.add_option("--predict", predict_, "Predictions from a file, instead of asking")
                     ->type_name("FILE")
                     ->check(kNotEmpty);
    command.add_flag("--no-predict", no_predict_, "Ask for no predictions")->excludes(file);
    command.add_option("--hints", hints_, "Show this many hints without being asked")
        ->type_name("N")
        ->check(CLI::NonNegativeNumber);
    command.add_option("--seed", seed_, "Seed of the random numbers")->type_name("N")->check(kNotEmpty);
    command.add_flag("--blind", blind_, "Symptoms first: find which line is broken; NAME is chosen for you")
        ->excludes(file);
    command.add_option("--notebook", notebook_, "Where predictions and guesses are kept")
        ->type_name("FILE")
        ->capture_default_str()
        ->check(kNotEmpty);
    command.add_flag("--json", json_, "Print everything as JSON; ask no questions");
    command.footer(kBreakExamples);
  }

  void run() const {
    if (blind_) return find();
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
    if (json_) {
      const Both both = run_both(*what, seed);
      return print_json(*what, predictions, lab::compare(both.healthy, both.broken));
    }
    Notebook notebook(notebook_);
    fmt::print("{}\n{}\n\nOne line changes:\n", bold(what->name), wrapped(what->summary, kExerciseWidth, 0));
    print_diff(*what);
    print_past(*what, notebook);
    if (predict_.empty() && !no_predict_) predictions = asked(*what);
    fmt::print("\n");
    const Both both = run_both(*what, seed);
    const auto found = lab::compare(both.healthy, both.broken);
    show(*what, predictions, found);
    print_figures({"healthy", both.healthy}, {"broken", both.broken});
    keep(*what, predictions, found, notebook);
    give_hints(*what);
    print_cause_and_fix(*what);
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

  // One that this notebook has not found yet, if there is one; by the seed, if one is given.
  void find() const {
    if (!name_.empty()) {
      throw CLI::ValidationError("--blind", fmt::format("expected no name with it, got '{}'", io::path_text(name_)));
    }
    if (json_) throw CLI::ValidationError("--blind", "expected no --json with it, since --json asks no questions");
    Notebook notebook(notebook_);
    std::vector<const Break*> left;
    for (const Break& b : lab::breaks()) {
      const auto guesses = notebook.last_of(b.name, true);
      if (guesses.empty() || !guesses.back().right()) left.push_back(&b);
    }
    if (left.empty() || !seed_.empty()) {
      left.clear();
      for (const Break& b : lab::breaks()) left.push_back(&b);
    }
    const std::uint64_t seed = seed_.empty() ? std::random_device()() : seed_number(seed_);
    find_it({*left[seed % left.size()], seed, hints_, notebook});
  }

  static void print_past(const Break& what, const Notebook& notebook) {
    const auto last = notebook.last_of(what.name, false);
    if (last.empty()) return;
    fmt::print("On {} you predicted, and this happened:\n", last.front().date);
    for (const Notebook::Entry& e : last) {
      fmt::print("  {:<20} {:<5} {}\n", e.question, e.said, e.right() ? "right" : "wrong, it was " + e.was);
    }
    fmt::print("\n");
  }

  static void keep(const Break& what, const Predictions& predictions, const std::vector<Observed>& found,
                   Notebook& notebook) {
    if (predictions.empty()) return;
    for (std::size_t i = 0; i < found.size(); ++i) {
      const auto said = predictions.find(what.questions[i].id);
      if (said == predictions.end()) continue;
      notebook.add(what.name, said->first, lab::name_of(said->second), lab::name_of(found[i].change()));
    }
    notebook.save();
    fmt::print("Your predictions are in {}\n\n", io::path_text(notebook.path()));
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
      print_hint(what, i);
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

  std::string name_, predict_, seed_, notebook_ = "lab-report/notebook.tsv";
  bool no_predict_ = false, json_ = false, blind_ = false;
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
