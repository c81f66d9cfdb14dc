#pragma once

namespace keel::cli {

// Whether this process is one of several that mpirun or srun started, and the command is one that they share.
bool runs_over_ranks(char** argv);

// keel-mpi, so that this program needs no MPI. Raises UsageError where it is missing.
void become_mpi_program(char** argv);

}  // namespace keel::cli
