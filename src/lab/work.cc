#include "lab/work.h"

#include <oneapi/tbb/parallel_for.h>
#include <oneapi/tbb/task_arena.h>

#include <mutex>
#include <numeric>

namespace keel::lab {

Observer& Work::nobody() {
  static Observer observer;
  return observer;
}

void Work::sweep(double share, const std::vector<double>& costs, const std::function<void(std::size_t)>& task) {
  const double total = std::accumulate(costs.begin(), costs.end(), 0.0);
  double finished = 0;
  std::mutex mutex;
  tbb::task_arena arena(settings_.threads > 0 ? settings_.threads : tbb::task_arena::automatic);
  arena.execute([&] {
    tbb::parallel_for(
        tbb::blocked_range<std::size_t>(0, costs.size(), 1),
        [&](const tbb::blocked_range<std::size_t>& range) {
          for (std::size_t i = range.begin(); i < range.end(); ++i) {
            if (observer_.stop()) throw Stopped{};
            task(i);
            const std::lock_guard lock(mutex);
            finished += costs[i];
            observer_.progress(done_ + share * finished / total);
          }
        },
        tbb::simple_partitioner{});
  });
  done_ += share;
}

}  // namespace keel::lab
