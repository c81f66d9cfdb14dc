#pragma once

#include <CLI/CLI.hpp>

namespace keel::cli {

// keel attend, by all processes of MPI together.
void add_mpi_attend(CLI::App& app);

}  // namespace keel::cli
