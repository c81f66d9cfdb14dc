#pragma once

#include <chrono>
#include <mutex>
#include <string>

namespace keel::cli {

// One line on stderr that shows a run's progress and the time left. Silent if stderr is not a terminal.
class Progress {
 public:
  // `expected`: seconds that the whole may take, shown until the run itself tells; 0 if nobody knows.
  explicit Progress(bool wanted, double expected = 0);
  ~Progress() { clear(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // `share` of the whole is done, in [0, 1]. From any thread; draws a few times per second.
  void show(const std::string& what, double share);
  void clear();

 private:
  using Clock = std::chrono::steady_clock;

  const bool shown_;
  const double expected_;
  const Clock::time_point start_ = Clock::now();
  Clock::time_point drawn_{};
  bool line_ = false;  // there is one on the terminal
  std::mutex mutex_;
};

}  // namespace keel::cli
