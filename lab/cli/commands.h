#pragma once

#include <CLI/CLI.hpp>

// The program `keel-lab`, which is what `keel lab` runs. It is a separate program because only it needs the training
// layer, and with it a BLAS, which starts threads and takes memory as soon as it is loaded.
namespace keel::cli {

void add_lab(CLI::App& app);
CLI::App* add_break(CLI::App& app);

}  // namespace keel::cli
