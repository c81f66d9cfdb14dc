#include "lab/cli/exercise.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <iostream>

#include "cli/common/progress.h"
#include "cli/common/terminal.h"
#include "io/messages.h"
#include "lab/cli/plot.h"
#include "lab/statistics.h"

namespace keel::cli {
namespace {

constexpr PlotSize kAlone{64, 8}, kBeside{36, 8};

void print(const Picture& picture) {
  for (const std::string& line : picture) fmt::print("  {}\n", line);
  fmt::print("\n");
}

void explain_shades(const std::vector<lab::Figure>& figures) {
  const auto is_map = [](const lab::Figure& f) { return std::holds_alternative<lab::Heatmap>(f.body); };
  if (std::any_of(figures.begin(), figures.end(), is_map)) fmt::print("  {}\n\n", kShades);
}

}  // namespace

std::string trimmed(const std::string& text) {
  const char* blank = " \t\r";
  const auto begin = text.find_first_not_of(blank);
  return begin == std::string::npos ? "" : text.substr(begin, text.find_last_not_of(blank) - begin + 1);
}

bool is_interactive() { return ::isatty(STDIN_FILENO) != 0; }

std::optional<std::string> ask(const std::string& prompt) {
  fmt::print("{}", prompt);
  std::fflush(stdout);
  std::string line;
  if (!std::getline(std::cin, line)) {
    fmt::print("\n");
    return {};
  }
  if (!is_interactive()) fmt::print("{}\n", io::path_text(line));  // as a terminal would show it
  return trimmed(line);
}

std::string spread(const std::vector<double>& values) {
  return lab::spread_text(lab::mean(values), lab::standard_deviation(values));
}

lab::Seen run_version(const lab::Break& which, lab::Version version, std::uint64_t seed, const std::string& what) {
  struct Watching : lab::Observer {
    Progress line{true};
    std::string what;
    void progress(double share) override { line.show(what, share); }
  } observer;
  observer.what = what;
  std::fflush(stdout);
  lab::Work work({.full = false, .seed = seed, .repeats = 0, .threads = 0}, observer);
  return which.run(work, version);
}

void print_diff(const lab::Break& which) { fmt::print("  - {}\n  + {}\n\n", which.before, which.after); }

void print_hint(const lab::Break& which, std::size_t i) {
  fmt::print("Hint {} of {}: {}\n", i + 1, which.hints.size(), wrapped(which.hints[i], kExerciseWidth - 13, 13));
}

void print_cause_and_fix(const lab::Break& which) {
  fmt::print("{}\n{}\n\n{}\n{}\n", bold("Cause"), wrapped(which.cause, kExerciseWidth, 0), bold("Fix"),
             wrapped(which.fix, kExerciseWidth, 0));
}

void print_figures(const lab::Seen& seen) {
  for (const lab::Figure& figure : seen.figures) {
    fmt::print("  {}\n", bold(figure.title));
    print(draw(figure, kAlone));
  }
  explain_shades(seen.figures);
}

void print_figures(const std::pair<std::string, const lab::Seen&>& left,
                   const std::pair<std::string, const lab::Seen&>& right) {
  for (std::size_t i = 0; i < left.second.figures.size(); ++i) {
    const lab::Figure &a = left.second.figures[i], &b = right.second.figures[i];
    std::optional<Range> y;
    if (const auto* first = std::get_if<lab::Lines>(&a.body), *second = std::get_if<lab::Lines>(&b.body);
        first != nullptr && second != nullptr) {
      const auto one = y_range(*first), other = y_range(*second);
      if (one && other) y = {std::min(one->first, other->first), std::max(one->second, other->second)};
    }
    fmt::print("  {}\n", bold(a.title));
    print(beside({left.first, draw(a, kBeside, y)}, {right.first, draw(b, kBeside, y)}));
  }
  explain_shades(left.second.figures);
}

}  // namespace keel::cli
