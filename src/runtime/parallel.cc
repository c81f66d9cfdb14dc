#include "runtime/parallel.h"

#include <tbb/global_control.h>
#include <tbb/parallel_for.h>
#include <tbb/task_arena.h>

#include <algorithm>
#include <atomic>

namespace keel {

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
  tbb::task_arena arena(workers);
  arena.execute([&] {
    tbb::parallel_for(
        0, workers,
        [&](int) {
          for (std::int64_t i = next++; i < count; i = next++) work(i);
        },
        tbb::simple_partitioner());
  });
}

}  // namespace keel
