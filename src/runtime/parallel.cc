#include "runtime/parallel.h"

#include <tbb/global_control.h>
#include <tbb/parallel_for.h>
#include <tbb/task_arena.h>

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

namespace keel {
namespace {

// Calls body() on `workers` threads, the calling one among them.
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

}  // namespace

void parallel_tasks(std::int64_t count, int threads, const std::function<void(std::int64_t)>& work) {
  int workers = static_cast<int>(std::min<std::int64_t>(threads, count));
  if (workers > 1) {
    const auto allowed = tbb::global_control::active_value(tbb::global_control::max_allowed_parallelism);
    workers = static_cast<int>(std::min<std::size_t>(static_cast<std::size_t>(workers), allowed));
  }
  if (workers <= 1) {
    for (std::int64_t i = 0; i < count; ++i) work(i);
    return;
  }
  std::atomic<std::int64_t> next = 0;
  run_on(workers, [&] {
    for (std::int64_t i = next++; i < count; i = next++) work(i);
  });
}

}  // namespace keel
