#include "cli/common/interrupt.h"

#include <atomic>
#include <cstdio>
#include <cstdlib>

#include "io/temporaries.h"

namespace keel::cli {
namespace {

std::atomic<bool> pressed{false};

// In a handler. The signal is blocked there and ends the process when the handler returns, with the status that
// a waiting process expects.
void end_by(int signal) {
  io::remove_temporaries();
  ::signal(signal, SIG_DFL);
  ::raise(signal);
}

}  // namespace

void leave_no_temporaries() {
  for (const int signal : {SIGHUP, SIGINT, SIGPIPE, SIGQUIT, SIGTERM, SIGXCPU}) {
    struct sigaction action {};
    ::sigaction(signal, nullptr, &action);
    if (action.sa_handler != SIG_DFL) continue;
    action.sa_handler = end_by;
    ::sigaction(signal, &action, nullptr);
  }
}

InterruptGuard::InterruptGuard() {
  struct sigaction action {};
  action.sa_handler = [](int signal) {
    if (pressed.exchange(true)) end_by(signal);
  };
  ::sigaction(SIGINT, &action, &before_);
}

InterruptGuard::~InterruptGuard() { ::sigaction(SIGINT, &before_, nullptr); }

bool interrupted() { return pressed; }

void end_interrupted() {
  std::fflush(stdout);
  io::remove_temporaries();
  ::signal(SIGINT, SIG_DFL);
  ::raise(SIGINT);
  std::abort();  // not reached
}

}  // namespace keel::cli
