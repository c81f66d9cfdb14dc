#include "runtime/parallel.h"

#include <tbb/global_control.h>
#include <tbb/parallel_for.h>
#include <tbb/task_arena.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <thread>
#include <vector>

namespace keel {
namespace {

std::atomic<int (*)()> team_size = nullptr;
std::atomic<decltype(Team::run)> team_run = nullptr;

// Calls body() on at most `workers` threads, the calling one among them.
template <class Body>
void run_on(int workers, const Body& body) {
#ifdef __SANITIZE_THREAD__
  // A thread sanitizer cannot look into oneTBB, which is not built for it, and would take its every hand-over for a
  // race. Threads of the standard library do the same tasks where it can see them.
  std::vector<std::jthread> others;
  for (int i = 1; i < workers; ++i) others.emplace_back(body);
  body();
#else
  tbb::task_arena arena(workers);
  arena.execute([&] {
    tbb::parallel_for(
        0, workers, [&](int) { body(); }, tbb::simple_partitioner());
  });
#endif
}

// The same by the threads of a team. All of them are called, as its own programs do: a team of another size would be
// made anew for the next. Those that are too many leave at once.
template <class Body>
void run_on(decltype(Team::run) run, int workers, const Body& body) {
  struct Call {
    const Body& body;
    std::atomic<int> places;
    std::atomic<bool> failed = false;
    std::exception_ptr error = nullptr;
  } call{body, workers};
  const auto join = [](void* data) {
    Call& each = *static_cast<Call*>(data);
    if (each.places-- <= 0) return;
    try {
      each.body();
    } catch (...) {  // which must not go through the team's own frames
      if (!each.failed.exchange(true)) each.error = std::current_exception();
    }
  };
  constexpr unsigned kAll = 0, kNoFlags = 0;
  run(join, &call, kAll, kNoFlags);
  if (call.error) std::rethrow_exception(call.error);
}

}  // namespace

void use_team(Team team) {
  team_size = team.size;
  team_run = team.run;
}

bool has_team(int threads) { return team_run != nullptr && threads <= team_size.load()(); }

void parallel_tasks(std::int64_t count, int threads, const std::function<void(std::int64_t)>& work) {
  int workers = static_cast<int>(std::min<std::int64_t>(threads, count));
  const bool by_team = workers > 1 && has_team(workers);
  if (workers > 1 && !by_team) {
    const auto allowed = tbb::global_control::active_value(tbb::global_control::max_allowed_parallelism);
    workers = static_cast<int>(std::min<std::size_t>(static_cast<std::size_t>(workers), allowed));
  }
  if (workers <= 1) {
    for (std::int64_t i = 0; i < count; ++i) work(i);
    return;
  }
  std::atomic<std::int64_t> next = 0;
  const auto take = [&] {
    for (std::int64_t i = next++; i < count; i = next++) work(i);
  };
  if (by_team) {
    run_on(team_run.load(), workers, take);
  } else {
    run_on(workers, take);
  }
}

}  // namespace keel
