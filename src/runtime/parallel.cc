#include "runtime/parallel.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <cfenv>
#include <climits>
#include <exception>
#include <thread>
#include <vector>

#include "runtime/between.h"

#if KEEL_WITH_TBB
#include <tbb/global_control.h>
#include <tbb/parallel_for.h>
#include <tbb/task_arena.h>
#endif

namespace keel {
namespace {

std::atomic<decltype(Team::size)> team_size = nullptr;
std::atomic<decltype(Team::run)> team_run = nullptr;

// A forked child has only one of its parent's threads. The team stays behind; and oneTBB, once used, may wait forever
// for a lock that another thread held at the fork, so the child computes on one thread from then on.
std::atomic<bool> tbb_used = false, alone = false;
[[maybe_unused]] const int kForks = pthread_atfork(nullptr, nullptr, [] {
  team_run = nullptr;
  alone = tbb_used.load();
});

// Calls body() on at most `workers` of the threads that run(…, threads, …) starts. A team is asked for all of its
// threads (0), as OpenMP programs do, since a change of size makes the library rebuild it; surplus threads return at
// once.
template <class Body>
void run_on(decltype(Team::run) run, unsigned threads, int workers, const Body& body) {
  struct Call {
    const Body& body;
    std::thread::id caller;
    std::atomic<int> places;  // for others
    std::fenv_t floating_point;
    std::atomic<bool> failed = false;
    std::exception_ptr error = nullptr;
  } call{body, std::this_thread::get_id(), workers - 1, {}};
  std::fegetenv(&call.floating_point);
  const auto join = [](void* data) {
    Call& each = *static_cast<Call*>(data);
    if (std::this_thread::get_id() != each.caller && each.places-- <= 0) return;
    std::fenv_t own;
    std::fegetenv(&own);
    std::fesetenv(&each.floating_point);  // every thread has the caller's denormal and rounding modes
    try {
      each.body();
    } catch (...) {  // exceptions must not unwind through the team's own frames
      if (!each.failed.exchange(true)) each.error = std::current_exception();
    }
    std::fesetenv(&own);
  };
  constexpr unsigned kNoFlags = 0;
  run(join, &call, threads, kNoFlags);
  if (call.error) std::rethrow_exception(call.error);
}

#if !KEEL_WITH_TBB
int allowed_threads() { return 1; }
template <class Body>
void run_on(int, const Body& body) {
  body();
}
#else
int allowed_threads() {
  const std::size_t threads = tbb::global_control::active_value(tbb::global_control::max_allowed_parallelism);
  return static_cast<int>(std::min<std::size_t>(threads, INT_MAX));
}
#if defined(__SANITIZE_THREAD__)
// The thread sanitizer cannot see into oneTBB, which is not built with it, and would report every hand-over as a race.
// There, standard threads run the same tasks instead.
template <class Body>
void run_on(int workers, const Body& body) {
  const auto start = [](void (*work)(void*), void* data, unsigned threads, unsigned) {
    std::vector<std::jthread> others;
    for (unsigned i = 1; i < threads; ++i) others.emplace_back(work, data);
    work(data);
  };
  run_on(start, static_cast<unsigned>(workers), workers, body);
}
#else
template <class Body>
void run_on(int workers, const Body& body) {
  tbb::task_arena arena(workers);
  arena.execute([&] {
    tbb::parallel_for(
        0, workers, [&](int) { body(); }, tbb::simple_partitioner());
  });
}
#endif
#endif

}  // namespace

void use_team(Team team) {
  team_size = team.size;
  team_run = team.size != nullptr ? team.run : nullptr;
}

Resources resources() {
  const auto size = team_size.load();
  return {&machine(), team_run != nullptr && size != nullptr ? size() : 0};
}

namespace {
thread_local const BetweenTasks* latest = nullptr;
}

BetweenTasks::BetweenTasks(const std::function<void()>& work) : work_(work), before_(latest) { latest = this; }
BetweenTasks::~BetweenTasks() { latest = before_; }
void BetweenTasks::run() {
  if (latest != nullptr) latest->work_();
}

void internal::parallel_tasks(std::int64_t count, int threads, const std::function<void(std::int64_t)>& work) {
  int workers = static_cast<int>(std::min<std::int64_t>(threads, count));
  const bool by_team = workers > 1 && resources().has_team(workers);
  if (!by_team && alone) workers = 1;
  if (workers > 1 && !by_team) {
    tbb_used = true;
    workers = std::min(workers, allowed_threads());
  }
  if (workers <= 1) {
    for (std::int64_t i = 0; i < count; ++i) work(i), BetweenTasks::run();
    return;
  }
  std::atomic<std::int64_t> next = 0;
  const auto take = [&] {
    for (std::int64_t i = next++; i < count; i = next++) work(i), BetweenTasks::run();
  };
  if (by_team) {
    constexpr unsigned kAll = 0;
    run_on(team_run.load(), kAll, workers, take);
  } else {
    run_on(workers, take);
  }
}

}  // namespace keel
