// keel lab: hands over to keel-lab, so that this program needs neither the training layer nor a BLAS.
#include <fmt/format.h>

#include <cstdlib>

#include "cli/commands.h"
#include "cli/common/become.h"
#include "cli/common/program.h"

namespace keel::cli {
namespace {

constexpr const char* kProgram = "keel-lab";

}  // namespace

void add_lab(CLI::App& app, char** arguments) {
  CLI::App* command = app.add_subcommand("lab", "What 1/sqrt(d_k) does: experiments, claims and a report");
  command->footer("keel lab --help lists its options.");
  command->callback([arguments] {
    // The lab calls the BLAS from its own threads. Threads that OpenBLAS starts would only take memory.
    ::setenv("OPENBLAS_NUM_THREADS", "1", /*overwrite=*/0);
    // A step of training allocates thousands of small blocks and frees them. glibc reuses 7 of each size at once, and
    // the others with more work: a tenth of the time.
    ::setenv("GLIBC_TUNABLES", "glibc.malloc.tcache_count=20000", /*overwrite=*/0);
    become("lab", kProgram, arguments);
    throw UsageError(
        fmt::format("lab: expected the program {0} next to keel or on the PATH, got none: build Keel with "
                    "-DKEEL_BUILD_NN=ON, or install {0} next to keel",
                    kProgram));
  });
}

}  // namespace keel::cli
