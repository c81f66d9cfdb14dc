#include "cli/common/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>

namespace keel::cli {
namespace {

// "1:05", "0:08"
std::string clock_text(double seconds) {
  const auto whole = static_cast<long>(seconds + 0.5);
  return fmt::format("{}:{:02}", whole / 60, whole % 60);
}

}  // namespace

Progress::Progress(bool wanted, double expected)
    : shown_(wanted && ::isatty(STDERR_FILENO) != 0), expected_(expected) {}

void Progress::show(const std::string& what, double share) {
  if (!shown_) return;
  const std::lock_guard lock(mutex_);
  const Clock::time_point now = Clock::now();
  if (now - drawn_ < std::chrono::milliseconds(200)) return;
  drawn_ = now;
  const double elapsed = std::chrono::duration<double>(now - start_).count();
  std::string left;
  if (share <= 0.02 && expected_ > 0) left = fmt::format("  about {}", clock_text(expected_));
  if (share > 0.02) left = fmt::format("  {} left", clock_text(elapsed * (1 - share) / share));
  const std::string line = fmt::format("\r\x1b[K{:3.0f} %  {}{}", 100 * share, what, left);
  std::fputs(line.c_str(), stderr);  // unlike fmt::print, silent if the terminal is gone
  std::fflush(stderr);
  line_ = true;
}

void Progress::clear() {
  const std::lock_guard lock(mutex_);
  if (line_) std::fputs("\r\x1b[K", stderr);
  line_ = false;
}

}  // namespace keel::cli
