#pragma once

#include <cstdint>
#include <functional>

#include "keel/threads.h"
#include "runtime/machine.h"

namespace keel {

// What libkeel shares with the libraries built on it, so that all use one set of threads: exported, but in no public
// header, and not for anyone else to call. That goes for everything in keel::internal; tests/package checks that only
// what those libraries use is exported.
inline namespace internal {

// Calls work(0) … work(count − 1), each once, on at most `threads` threads, including the calling one: those of a team
// that was given to use_team(), if it has enough, or at most as many as oneTBB may use in this process; without either,
// only the calling one. Tasks start in order and go to whichever thread is free, so put heavy ones first. With one
// thread or one task no other thread is touched, and a forked child whose parent has used oneTBB has only one. The
// first exception that a task raises is rethrown here.
KEEL_API void parallel_tasks(std::int64_t count, int threads, const std::function<void(std::int64_t)>& work);

}  // namespace internal

// This machine and its team, now.
Resources resources();

}  // namespace keel
