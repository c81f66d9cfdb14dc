#include "bench/processors.h"

#ifdef __linux__
#include <sched.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <tuple>
#include <vector>

#include "runtime/parallel.h"
#endif

namespace keel::bench {
#ifdef __linux__
namespace {

// How many threads of the same core have lower numbers.
int place_in_core(int cpu) {
  std::ifstream file("/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/thread_siblings_list");
  int place = 0, from = 0;  // a list such as 0-1 or 0,8
  for (char separator = ','; file >> from; file >> separator) {
    int to = from;
    if (file.peek() == '-') file >> separator >> to;
    place += std::clamp(cpu - from, 0, to - from + 1);
  }
  return place;
}

// Those that the process may use.
const std::vector<int>& processors() {
  static const std::vector<int> all = [] {
    std::vector<int> found;
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof(set), &set) != 0) return found;
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
      if (CPU_ISSET(cpu, &set)) found.push_back(cpu);
    }
    std::stable_sort(found.begin(), found.end(), [](int a, int b) { return place_in_core(a) < place_in_core(b); });
    // oneTBB never starts more threads than the process might use when it was first asked.
    const auto count = static_cast<int>(found.size());
    keel::internal::parallel_tasks(count, count, [](std::int64_t) {});
    return found;
  }();
  return all;
}

cpu_set_t set_of(std::size_t begin, std::size_t end) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (std::size_t i = begin; i < std::min(end, processors().size()); ++i) CPU_SET(processors()[i], &set);
  return set;
}

}  // namespace

void bind_thread(int n) {
  if (processors().empty()) return;
  const std::size_t at = static_cast<std::size_t>(n) % processors().size();
  const cpu_set_t set = set_of(at, at + 1);
  sched_setaffinity(0, sizeof(set), &set);
}

void bind_process(int count) {
  const cpu_set_t set = set_of(0, static_cast<std::size_t>(count));
  for (const auto& thread : std::filesystem::directory_iterator("/proc/self/task")) {
    sched_setaffinity(std::atoi(thread.path().filename().c_str()), sizeof(set), &set);
  }
}

void unbind_process() { bind_process(static_cast<int>(processors().size())); }
#else
void bind_thread(int) {}
void bind_process(int) {}
void unbind_process() {}
#endif

}  // namespace keel::bench
