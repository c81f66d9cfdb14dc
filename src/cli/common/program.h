#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <stdexcept>

// What Keel's programs share. A subcommand prints data on stdout, progress on stderr and only on a terminal, and
// reports errors by throwing: run_program() turns them into one line and an exit status.
namespace keel::cli {

inline constexpr int kOk = 0;
inline constexpr int kUsage = 2;     // UsageError
inline constexpr int kBadInput = 3;  // keel::Error, and every other failure; 1 is for a check that does not hold

// A command line that cannot be understood, or asks for something that does not exist.
struct UsageError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// "keel: MESSAGE" on stderr, in one line whatever the message contains. Allocates nothing and never fails: a full
// stderr cannot be reported.
void complain(const char* message) noexcept;

// --help, --version and the style of the help, which subcommands inherit: call it before adding them.
void prepare(CLI::App& app);

// Reads the command line and runs what it asks for; --man, --complete WORDS and --completion SHELL as its first word
// print the manual page, what may come next, and a script for a shell. CLI11's errors become UsageError, with a hint
// where to look.
void parse(CLI::App& app, int argc, const char* const* argv);

// main(): runs `body` and returns the exit status. Whatever it throws becomes one line on stderr; data that did not
// reach stdout is a failure too.
int run_program(const std::function<void()>& body) noexcept;

}  // namespace keel::cli
