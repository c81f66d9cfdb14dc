#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <stdexcept>

// What Keel's programs share. A subcommand prints data on stdout, progress on stderr and only on a terminal, and says
// what went wrong by throwing: run_program() turns it into one line and an exit status.
namespace keel::cli {

inline constexpr int kOk = 0;
inline constexpr int kCheckFailed = 1;  // CheckFailed
inline constexpr int kUsage = 2;        // UsageError
inline constexpr int kBadInput = 3;     // keel::Error, and every other failure

// The program worked, but what it was asked to check does not hold.
struct CheckFailed : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// A command line that cannot be understood, or asks for what is not there.
struct UsageError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// "keel: MESSAGE" on stderr, in one line whatever the message holds. Takes no memory and never fails: a stderr that is
// full is nothing to report.
void complain(const char* message) noexcept;

// --help, --version and the look of the help, which subcommands take over: call it before adding them.
void prepare(CLI::App& app);

// Reads the command line and runs what it asks for. What CLI11 raises becomes UsageError, with where to look.
void parse(CLI::App& app, int argc, const char* const* argv);

// main(): runs `body` and gives the exit status. Whatever it throws becomes one line on stderr; data that did not reach
// stdout is a failure too.
int run_program(const std::function<void()>& body) noexcept;

}  // namespace keel::cli
