#include "lab/work.h"

#include <algorithm>
#include <mutex>
#include <numeric>

#include "runtime/machine.h"
#include "runtime/parallel.h"

namespace keel::lab {

Observer& Work::nobody() {
  static Observer observer;
  return observer;
}

void Work::sweep(double share, const std::vector<double>& costs, const std::function<void(std::size_t)>& task) {
  sweep(share, costs, settings_.threads > 0 ? settings_.threads : machine().threads, task);
}

void Work::in_turn(double share, std::size_t count, const std::function<void(std::size_t)>& task) {
  sweep(share, std::vector<double>(count, 1.0), 1, task);
}

void Work::sweep(double share, const std::vector<double>& costs, int threads,
                 const std::function<void(std::size_t)>& task) {
  std::vector<std::size_t> order(costs.size());  // heavy ones first
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return costs[a] > costs[b]; });
  const double total = std::accumulate(costs.begin(), costs.end(), 0.0);
  double finished = 0;
  std::mutex mutex;
  parallel_tasks(static_cast<std::int64_t>(order.size()), threads, [&](std::int64_t turn) {
    if (observer_.stop()) throw Stopped{};
    const std::size_t i = order[static_cast<std::size_t>(turn)];
    task(i);
    const std::lock_guard lock(mutex);
    finished += costs[i];
    observer_.progress(done_ + share * finished / total);
  });
  done_ += share;
}

}  // namespace keel::lab
