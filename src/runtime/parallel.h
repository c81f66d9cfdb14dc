#pragma once

#include <cstdint>
#include <functional>

#include "keel/threads.h"
#include "runtime/machine.h"

namespace keel {

// What libkeel lends to the libraries beside it, so that all use one set of threads: exported, yet in no public header,
// and nobody else's to call. Everything in keel::internal is; tests/package sees that nothing more is exported than
// those libraries use.
inline namespace internal {

// Calls work(0) … work(count − 1), each once, on at most `threads` threads, the calling one among them: those of a team
// that was given to use_team(), if it has so many, or no more than oneTBB may use in this process; without either, on
// the calling one alone. Tasks start in order and go to whoever is free, so put heavy ones first. With one thread or
// one task no other thread is touched, and a forked child whose parent has used oneTBB has but one. The first exception
// that a task raises is raised here.
KEEL_API void parallel_tasks(std::int64_t count, int threads, const std::function<void(std::int64_t)>& work);

}  // namespace internal

// This machine and its team, now.
Resources resources();

}  // namespace keel
