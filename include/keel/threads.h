#pragma once

#include "keel/export.h"

namespace keel {

// The threads of an OpenMP library, given by two of its functions: run is GOMP_parallel, the entry point that compilers
// use, which calls work(data) on the calling thread and the rest of its team and returns when all are done; size is
// omp_get_max_threads.
struct Team {
  void (*run)(void (*work)(void*), void* data, unsigned threads, unsigned flags) = nullptr;
  int (*size)() = nullptr;
};

// From now on calls, including those of the training layer, are computed by this team's threads if it has as many as
// the call may use, and by oneTBB's otherwise. A program that already computes with OpenMP then has one set of threads,
// not two that compete for cores. Results are the same, bit for bit. A forked child, in which the team's threads do not
// exist, goes back to oneTBB's, or to one thread if its parent has used those.
KEEL_API void use_team(Team team);

}  // namespace keel
