#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lab/breaks/breaks.h"
#include "lab/cli/notebook.h"

// What the two forms of `keel lab break` share.
namespace keel::cli {

inline constexpr std::size_t kExerciseWidth = 98;

std::string trimmed(const std::string& text);

// A line of stdin, after printing `prompt`; nothing at the end of input.
std::optional<std::string> ask(const std::string& prompt);
bool is_interactive();  // stdin is a terminal: a wrong answer may be given again

// "0.31 ± 0.02"
std::string spread(const std::vector<double>& values);

// Runs one version, with progress called `what`.
lab::Seen run_version(const lab::Break& which, lab::Version version, std::uint64_t seed, const std::string& what);

void print_diff(const lab::Break& which);
void print_hint(const lab::Break& which, std::size_t i);
void print_cause_and_fix(const lab::Break& which);

// The pictures of one version; or of two, side by side on the same scale.
void print_figures(const lab::Seen& seen);
void print_figures(const std::pair<std::string, const lab::Seen&>& left,
                   const std::pair<std::string, const lab::Seen&>& right);

// keel lab break --blind: symptoms first, then hints and guesses, then the line, the fix, and a run with it.
struct BlindRequest {
  const lab::Break& which;
  std::uint64_t seed = 0;
  std::size_t hints = 0;  // shown without being asked for
  Notebook& notebook;
};
void find_it(const BlindRequest& request);

}  // namespace keel::cli
