#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

// What CLI11 knows of a program, as a manual page and as completions of a command line.
namespace keel::cli {

// Troff, for man(1): the program, its options, and each subcommand with its own.
std::string manual_page(const CLI::App& app);

// What may come after `words`, one per line: options and subcommands of the one that they name.
std::string completions(const CLI::App& app, const std::vector<std::string>& words);

// A script for bash, zsh or fish that asks `keel --complete`. Raises UsageError for another shell.
std::string completion_script(const std::string& shell);

}  // namespace keel::cli
