#pragma once

#include <CLI/CLI.hpp>
#include <stdexcept>

// The program `keel`: one file a subcommand, and one function here that adds it to the program. A subcommand prints
// data on stdout, progress on stderr and only on a terminal, and says what went wrong by throwing: main.cc turns it
// into one line and an exit status.
namespace keel::cli {

inline constexpr int kOk = 0;
inline constexpr int kCheckFailed = 1;  // CheckFailed
inline constexpr int kUsage = 2;        // CLI::ParseError, such as CLI::ValidationError
inline constexpr int kBadInput = 3;     // keel::Error, and every other failure

// The program worked, but what it was asked to check does not hold.
struct CheckFailed : std::runtime_error {
  using std::runtime_error::runtime_error;
};

void add_attend(CLI::App& app);
void add_bench(CLI::App& app);
void add_info(CLI::App& app);
void add_lab(CLI::App& app);
CLI::App* add_lab_break(CLI::App& lab);  // below it

}  // namespace keel::cli
