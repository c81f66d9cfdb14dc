#include "runtime/machine.h"

#include <hwy/targets.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <memory>
#include <thread>

#if defined(__linux__)
#include <sched.h>
#include <unistd.h>
#elif defined(__APPLE__)
#include <sys/sysctl.h>
#endif

// Every system reports these in its own way; where Keel knows none, it guesses.
namespace keel {
namespace {

#if defined(__APPLE__)
std::string cpu_name() {
  char text[256];
  std::size_t size = sizeof(text);
  return sysctlbyname("machdep.cpu.brand_string", text, &size, nullptr, 0) == 0 ? std::string(text) : "unknown";
}
#else
std::string cpu_name() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  }
  return "unknown";
}
#endif

enum class Cache { l1, l2, l3 };

// 0 if the system does not tell.
#if defined(__linux__) && defined(_SC_LEVEL1_DCACHE_SIZE)  // glibc
std::int64_t cache_bytes(Cache cache) {
  return sysconf(cache == Cache::l1   ? _SC_LEVEL1_DCACHE_SIZE
                 : cache == Cache::l2 ? _SC_LEVEL2_CACHE_SIZE
                                      : _SC_LEVEL3_CACHE_SIZE);
}
#elif defined(__APPLE__)
std::int64_t cache_bytes(Cache cache) {
  std::int64_t bytes = 0;
  std::size_t size = sizeof(bytes);
  const char* name = cache == Cache::l1 ? "hw.l1dcachesize" : cache == Cache::l2 ? "hw.l2cachesize" : "hw.l3cachesize";
  return sysctlbyname(name, &bytes, &size, nullptr, 0) == 0 ? bytes : 0;
}
#else
std::int64_t cache_bytes(Cache) { return 0; }
#endif

std::int64_t cache_bytes(Cache cache, std::int64_t otherwise) {
  const std::int64_t bytes = cache_bytes(cache);
  return bytes > 0 ? bytes : otherwise;
}

int usable_processors() {
#if defined(__linux__)
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof(set), &set) == 0) return std::max(1, CPU_COUNT(&set));
#endif
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

Machine look() {
  Machine m;
  m.cpu = cpu_name();
  for (std::int64_t left = hwy::SupportedTargets() & HWY_TARGETS; left != 0; left &= left - 1) {
    m.targets.emplace_back(hwy::TargetName(left & -left));
    m.target_bits.push_back(left & -left);
  }
  m.threads = usable_processors();
  m.own_threads = KEEL_WITH_TBB;
  m.l1_bytes = cache_bytes(Cache::l1, 32 << 10);
  m.l2_bytes = cache_bytes(Cache::l2, 256 << 10);
  m.l3_bytes = cache_bytes(Cache::l3, 4 << 20);
  return m;
}

}  // namespace

// No lock: a child forked during the first query would find it held. Two threads may both query.
const Machine& internal::machine() {
  static std::atomic<const Machine*> found = nullptr;
  const Machine* known = found;
  if (known != nullptr) return *known;
  auto looked = std::make_unique<const Machine>(look());
  if (found.compare_exchange_strong(known, looked.get())) known = looked.release();
  return *known;
}

}  // namespace keel
