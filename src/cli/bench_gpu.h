#pragma once

#include <CLI/CLI.hpp>

namespace keel::cli {

// keel bench gpu.
void add_bench_gpu(CLI::App& bench);

}  // namespace keel::cli
