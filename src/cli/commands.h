#pragma once

#include <CLI/CLI.hpp>

// The program `keel`: one file per subcommand, and one function here that adds it to the program.
namespace keel::cli {

void add_attend(CLI::App& app);
CLI::App& add_bench(CLI::App& app);  // to which more kinds of measurements may be added
void add_info(CLI::App& app);
void add_lab(CLI::App& app, char** arguments);  // those after `lab`

}  // namespace keel::cli
