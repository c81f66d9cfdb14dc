#pragma once

#include <signal.h>

namespace keel::cli {

// From now on a signal that asks the process to end (Ctrl-C, a closed terminal or pipe, a time limit) removes the files
// that are half written first. What the process was started to ignore stays ignored.
void leave_no_temporaries();

// While it lives, the first Ctrl-C asks the run to stop; the second ends the process as usual.
class InterruptGuard {
 public:
  InterruptGuard();
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;

 private:
  struct sigaction before_ {};
};

// Whether Ctrl-C was pressed under a guard.
bool interrupted();

// Ends as a program does that Ctrl-C ended.
[[noreturn]] void end_interrupted();

}  // namespace keel::cli
