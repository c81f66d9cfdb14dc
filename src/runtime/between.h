#pragma once

#include <functional>

namespace keel {

// As long as it exists, the thread that made it calls `work` after every task of parallel_tasks() which it runs itself:
// for what must be looked after while a long call computes.
class BetweenTasks {
 public:
  explicit BetweenTasks(const std::function<void()>& work);
  ~BetweenTasks();
  BetweenTasks(const BetweenTasks&) = delete;
  BetweenTasks& operator=(const BetweenTasks&) = delete;

  static void run();  // the work of the calling thread's innermost one

 private:
  const std::function<void()>& work_;
  const BetweenTasks* const before_;
};

}  // namespace keel
