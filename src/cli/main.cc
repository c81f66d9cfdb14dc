#include <string_view>
#include <utility>

#include "cli/bench_gpu.h"
#include "cli/bench_ring.h"
#include "cli/commands.h"
#include "cli/common/program.h"
#include "cli/under_mpi.h"
#include "runtime/machine.h"

int main(int argc, char** argv) {
  using namespace keel::cli;
  return run_program([&] {
    if (argc > 1 && runs_over_ranks(argv)) become_mpi_program(argv);
    CLI::App app("Scaled dot-product attention: run it, look at it, explain it.", "keel");
    prepare(app);
    app.require_subcommand(1);
    // What follows `lab` is for keel-lab to read.
    const auto is = [&](int i, std::string_view word) { return i < argc && argv[i] == word; };
    if (is(1, "--complete") && is(2, "lab")) std::swap(argv[1], argv[2]);
    const bool lab = is(1, "lab");
    add_attend(app);
    add_info(app);
    add_lab(app, argv + (lab ? 2 : argc));
    const keel::bench::World threads{keel::machine().threads, true, keel::ring::run_threads};
    CLI::App& bench = add_bench(app);
    add_bench_gpu(bench);
    add_bench_ring(bench, threads);
    parse(app, lab ? 2 : argc, argv);
  });
}
