#include "runtime/machine.h"

#include <hwy/targets.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <thread>

#if HWY_ARCH_X86
#include <cpuid.h>
#endif
#if defined(__linux__)
#include <sched.h>
#include <sys/syscall.h>
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

#if HWY_ARCH_X86
struct Registers {
  unsigned a = 0, b = 0, c = 0, d = 0;
};
Registers cpuid(unsigned leaf, unsigned part) {
  Registers r;
  __get_cpuid_count(leaf, part, &r.a, &r.b, &r.c, &r.d);  // all 0 if there is no such leaf
  return r;
}
bool has_bit(unsigned bits, int at) { return (bits >> at & 1u) != 0; }

bool has_avx512_bf16() { return has_bit(cpuid(7, 1).a, 5); }
bool has_amx() { return has_bit(cpuid(7, 0).d, 22) && has_bit(cpuid(7, 0).d, 24); }

// The state of tiles is large, so Linux gives it to processes that ask for it.
bool may_use_tiles() {
#if defined(__linux__) && defined(SYS_arch_prctl)
  constexpr int kRequestPermission = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
#else
  return false;
#endif
}

bool is_amd() { return cpuid(0, 0).b == 0x68747541; }  // "Auth"enticAMD

// AMD multiplies pairs of bf16 as fast as it multiplies floats, so twice as many of them (Zen 4); Intel takes four
// times as long (Sapphire Rapids: half the rate of FMAs). Not measured at run time, as results must not depend on
// chance.
bool multiplies_pairs_fast() { return is_amd(); }

// Unscaled rows at d = 256, many of whose weights are denormal: 0.49 × the speed of scaled ones on a Sapphire Rapids
// that does not flush them, 0.96 × on a Zen 4.
bool has_slow_denormals() { return !is_amd(); }
#else
bool has_avx512_bf16() { return false; }
bool has_amx() { return false; }
bool may_use_tiles() { return false; }
bool multiplies_pairs_fast() { return false; }
bool has_slow_denormals() { return false; }
#endif

// Whether the environment variable switches a unit off.
bool is_off(const char* variable) {
  const char* const value = std::getenv(variable);
  return value != nullptr && std::string(value) == "0";
}

void look_for_units(Machine& m) {
  const bool wide = std::find(m.targets.begin(), m.targets.end(), "AVX3") != m.targets.end();
  const auto add = [&](MatrixUnit unit, const char* name, const char* variable, bool present, bool (*permitted)()) {
    std::string why_not;
    if (!present || !wide) {
      why_not = "this CPU has none";
    } else if (is_off(variable)) {
      why_not = std::string("switched off by ") + variable + "=0";
    } else if (!permitted()) {
      why_not = "the operating system does not permit it";
    }
    m.units.push_back({unit, name, why_not});
    return why_not.empty();
  };
  const bool dot =
      add(MatrixUnit::avx512_bf16, "avx512_bf16", "KEEL_AVX512_BF16", has_avx512_bf16(), [] { return true; });
  const bool tiles = add(MatrixUnit::amx, "amx", "KEEL_AMX", has_amx() && has_avx512_bf16(), may_use_tiles);
  if (tiles) {
    m.bf16_unit = MatrixUnit::amx;
  } else if (dot && multiplies_pairs_fast()) {
    m.bf16_unit = MatrixUnit::avx512_bf16;
  }
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
  look_for_units(m);
  m.slow_denormals = has_slow_denormals();
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
