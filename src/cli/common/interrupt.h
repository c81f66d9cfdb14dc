#pragma once

#include <signal.h>  // NOLINT(modernize-deprecated-headers): POSIX

namespace keel::cli {

// From now on a signal that asks the process to end (Ctrl-C, a closed terminal or pipe, a time limit) first removes
// half-written files. Signals that the process was started to ignore stay ignored.
void leave_no_temporaries();

// While it is alive, the first Ctrl-C asks the run to stop; the second ends the process as usual.
class InterruptGuard {
 public:
  [[nodiscard]] InterruptGuard();
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;

 private:
  struct sigaction before_ {};
};

// Whether Ctrl-C was pressed under a guard.
[[nodiscard]] bool interrupted();

// Ends the process as Ctrl-C would.
[[noreturn]] void end_interrupted();

}  // namespace keel::cli
