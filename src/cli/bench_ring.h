#pragma once

#include <CLI/CLI.hpp>

#include "bench/ring.h"

namespace keel::cli {

// keel bench ring, on the ranks of a world.
void add_bench_ring(CLI::App& bench, const bench::World& world);

}  // namespace keel::cli
