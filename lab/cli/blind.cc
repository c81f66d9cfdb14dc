// keel lab break --blind: a break to find.
#include <fmt/format.h>

#include <algorithm>

#include "cli/common/terminal.h"
#include "io/messages.h"
#include "keel/error.h"
#include "lab/cli/exercise.h"

namespace keel::cli {
namespace {

using lab::Break;

void print_symptoms(const Break& which, const lab::Seen& broken) {
  fmt::print("One line of this attention is wrong. {}\n\n{}\n", wrapped(which.scene, kExerciseWidth, 0),
             bold("What it shows"));
  for (std::size_t i = 0; i < which.questions.size(); ++i) {
    fmt::print("  {:<76} {}\n", which.questions[i].text, spread(broken.values[i]));
  }
  fmt::print("\n");
  print_figures(broken);
}

// The number that was typed, from 1 on; 0 for what is none of them.
std::size_t number_of(const std::string& answer) {
  for (std::size_t i = 0; i < lab::breaks().size(); ++i) {
    if (answer == fmt::format("{}", i + 1)) return i + 1;
  }
  return 0;
}

struct Search {
  std::size_t guesses = 0, hints = 0;
  bool found = false;
};

// Guesses and hints until it is found, or given up.
Search search(const BlindRequest& request) {
  const Break& which = request.which;
  Search done;
  fmt::print("{}\n", bold("Which line is it?"));
  for (std::size_t i = 0; i < lab::breaks().size(); ++i) fmt::print("  {}  {}\n", i + 1, lab::breaks()[i].suspect);
  fmt::print("\n");
  while (done.hints < std::min(request.hints, which.hints.size())) print_hint(which, done.hints++);
  for (;;) {
    const bool more = done.hints < which.hints.size();
    const auto answer = ask(fmt::format("Your guess, 1 to {}{}, or Enter to give up: ", lab::breaks().size(),
                                        more ? ", h for a hint" : ""));
    if (!answer || answer->empty()) return done;
    if (more && (*answer == "h" || *answer == "hint")) {
      print_hint(which, done.hints++);
      continue;
    }
    const std::size_t number = number_of(*answer);
    if (number == 0) {
      if (!is_interactive()) {
        throw Error(ErrorCode::bad_file, fmt::format("[lab break] stdin: expected a number from 1 to {} or h, got '{}'",
                                                     lab::breaks().size(), io::path_text(answer->substr(0, 60))));
      }
      continue;
    }
    const Break& said = lab::breaks()[number - 1];
    ++done.guesses;
    request.notebook.add(which.name, Notebook::kGuess, said.name, which.name);
    if (said.name == which.name) {
      done.found = true;
      return done;
    }
    fmt::print("No, that is not it.{}\n", more ? " A hint may help: h" : "");
  }
}

void print_past(const BlindRequest& request) {
  std::size_t right = 0, wrong = 0;
  for (const Notebook::Entry& entry : request.notebook.entries()) {
    if (entry.question == Notebook::kGuess) ++(entry.right() ? right : wrong);
  }
  if (right + wrong == 0) return;
  fmt::print("Your notebook so far: {} found, {} wrong {}.\n\n", right, wrong, wrong == 1 ? "guess" : "guesses");
}

}  // namespace

void find_it(const BlindRequest& request) {
  const Break& which = request.which;
  print_past(request);
  const auto earlier = request.notebook.last_of(which.name, true);
  const lab::Seen broken = run_version(which, lab::Version::broken, request.seed, "running it");
  print_symptoms(which, broken);
  const Search done = search(request);
  if (done.guesses > 0) request.notebook.save();
  if (done.found) {
    fmt::print("\nYes: {}, with {} {} and {} {}.\n", which.suspect, done.guesses,
               done.guesses == 1 ? "guess" : "guesses", done.hints, done.hints == 1 ? "hint" : "hints");
  } else {
    fmt::print(
        "\nIt was number {}: {}.\n",
        std::find_if(lab::breaks().begin(), lab::breaks().end(), [&](const Break& b) { return b.name == which.name; }) -
            lab::breaks().begin() + 1,
        which.suspect);
  }
  if (!earlier.empty()) {
    fmt::print(
        "On {} you {} it.\n", earlier.front().date,
        std::any_of(earlier.begin(), earlier.end(), [](const auto& e) { return e.right(); }) ? "found" : "missed");
  }
  fmt::print("\n{} ({})\n", bold("The line"), which.name);
  print_diff(which);
  print_cause_and_fix(which);
  fmt::print("\n{}\n", bold("With the fix"));
  const lab::Seen fixed = run_version(which, lab::Version::healthy, request.seed, "running it with the fix");
  for (std::size_t i = 0; i < which.questions.size(); ++i) {
    fmt::print("  {}\n    broken {:<18} fixed {}\n", which.questions[i].text, spread(broken.values[i]),
               spread(fixed.values[i]));
  }
  fmt::print("\n");
  print_figures({"broken", broken}, {"fixed", fixed});
  if (done.guesses > 0) fmt::print("Your guesses are in {}\n", io::path_text(request.notebook.path()));
}

}  // namespace keel::cli
