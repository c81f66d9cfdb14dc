#pragma once

#include <cstdint>
#include <functional>

namespace keel {

// Calls work(0) … work(count − 1), each once, on at most `threads` threads, the calling one among them (and no more
// than oneTBB may use in this process). Tasks start in order and go to whoever is free, so put heavy ones first. With
// one thread or one task no other thread is touched. The first exception that a task raises is raised here.
void parallel_tasks(std::int64_t count, int threads, const std::function<void(std::int64_t)>& work);

// The threads of an OpenMP library, as its compilers see them: run (GOMP_parallel) calls work(data) on the calling
// thread and the others of its team, size (omp_get_max_threads) says how many these are.
struct Team {
  void (*run)(void (*work)(void*), void* data, unsigned threads, unsigned flags);
  int (*size)();
};

// From now on parallel_tasks() takes the threads of this team where they are enough, in place of oneTBB's. A program
// that computes with the team anyway then has one set of threads that is awake, not two that take each other's cores.
void use_team(Team team);
bool has_team(int threads);  // one of at least so many

}  // namespace keel
