#include "runtime/machine.h"

#include <hwy/targets.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

namespace keel {
namespace {

std::string cpu_name() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  }
  return "unknown";
}

// A cache's size, or `otherwise` where the system does not tell.
std::int64_t cache_bytes(int name, std::int64_t otherwise) {
  const long bytes = sysconf(name);
  return bytes > 0 ? bytes : otherwise;
}

int usable_processors() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return 1;
  return std::max(1, CPU_COUNT(&set));
}

Machine look() {
  Machine m;
  m.cpu = cpu_name();
  for (std::int64_t left = hwy::SupportedTargets() & HWY_TARGETS; left != 0; left &= left - 1) {
    m.targets.emplace_back(hwy::TargetName(left & -left));
    m.target_bits.push_back(left & -left);
  }
  m.threads = usable_processors();
  m.l1_bytes = cache_bytes(_SC_LEVEL1_DCACHE_SIZE, 32 << 10);
  m.l2_bytes = cache_bytes(_SC_LEVEL2_CACHE_SIZE, 256 << 10);
  m.l3_bytes = cache_bytes(_SC_LEVEL3_CACHE_SIZE, 4 << 20);
  return m;
}

}  // namespace

const Machine& internal::machine() {
  static const Machine found = look();
  return found;
}

}  // namespace keel
