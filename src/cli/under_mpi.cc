#include "cli/under_mpi.h"

#include <cstdlib>
#include <string>
#include <string_view>

#include "cli/common/become.h"
#include "cli/common/program.h"

namespace keel::cli {

bool runs_over_ranks(char** argv) {
  const std::string_view command = argv[1];
  const bool shared =
      command == "attend" || (command == "bench" && argv[2] != nullptr && argv[2] == std::string_view("ring"));
  if (!shared) return false;
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_RANK"}) {  // Open MPI; MPICH and srun; PMIx
    if (std::getenv(name) != nullptr) return true;
  }
  return false;
}

void become_mpi_program(char** argv) {
  become("mpi", "keel-mpi", argv + 1);
  throw UsageError(
      "expected the program keel-mpi next to keel or on the PATH, as this is one of several processes of MPI, got "
      "none: "
      "build Keel with -DKEEL_BUILD_MPI=ON");
}

}  // namespace keel::cli
