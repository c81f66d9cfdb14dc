#include "bench/resident.h"

#include <algorithm>
#include <fstream>
#include <sstream>
#include <string>

namespace keel::bench {
namespace {

// A line of /proc/self/status such as "VmRSS:     1234 kB", in bytes.
std::optional<std::int64_t> status_bytes(const std::string& name) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (!line.starts_with(name + ":")) continue;
    std::istringstream rest(line.substr(name.size() + 1));
    std::int64_t kib = 0;
    if (rest >> kib) return kib * 1024;
  }
  return std::nullopt;
}

// Resets the peak that the system records to what is resident now.
bool reset_peak() {
  std::ofstream file("/proc/self/clear_refs");
  file << "5" << std::flush;
  return file.good();
}

}  // namespace

std::optional<std::int64_t> resident_growth(const std::function<void()>& work) {
  const bool reset = reset_peak();
  const std::optional<std::int64_t> before = status_bytes("VmRSS");
  work();
  const std::optional<std::int64_t> peak = status_bytes("VmHWM");
  if (!reset || !before || !peak) return std::nullopt;
  return std::max<std::int64_t>(*peak - *before, 0);
}

}  // namespace keel::bench
