#pragma once

#include "keel/export.h"

namespace keel {

// The threads of an OpenMP library, by two functions that it has for its compilers and for everyone: run is
// GOMP_parallel, which calls work(data) on the calling thread and the rest of its team and returns when all are done;
// size is omp_get_max_threads.
struct Team {
  void (*run)(void (*work)(void*), void* data, unsigned threads, unsigned flags) = nullptr;
  int (*size)() = nullptr;
};

// From now on calls, those of the training layer too, are computed by the threads of this team where it has as many as
// the call may use, and by oneTBB's elsewhere. A program that computes with OpenMP anyway then has one set of threads,
// not two that take each other's cores. Results are the same, bit for bit. A forked child, where the team's threads do
// not exist, is back with oneTBB's; or on one thread, where its parent has used those.
KEEL_API void use_team(Team team);

}  // namespace keel
