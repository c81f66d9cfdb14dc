#pragma once

#include <chrono>
#include <mutex>
#include <string>

namespace keel::cli {

// One line on stderr that says how far a run is and how long it will still take. Silent where stderr is no terminal.
class Progress {
 public:
  explicit Progress(bool wanted);
  ~Progress() { clear(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // `share` of the whole is done, in [0, 1]. From any thread; draws a few times a second.
  void show(const std::string& what, double share);
  void clear();

 private:
  using Clock = std::chrono::steady_clock;

  const bool shown_;
  const Clock::time_point start_ = Clock::now();
  Clock::time_point drawn_{};
  bool line_ = false;  // there is one on the terminal
  std::mutex mutex_;
};

}  // namespace keel::cli
