#include "cli/common/interrupt.h"

#include <atomic>
#include <cstdio>
#include <cstdlib>

namespace keel::cli {
namespace {

std::atomic<bool> pressed{false};

}  // namespace

InterruptGuard::InterruptGuard() {
  struct sigaction action {};
  action.sa_handler = [](int) { pressed = true; };
  action.sa_flags = static_cast<int>(SA_RESETHAND);
  ::sigaction(SIGINT, &action, &before_);
}

InterruptGuard::~InterruptGuard() { ::sigaction(SIGINT, &before_, nullptr); }

bool interrupted() { return pressed; }

void end_interrupted() {
  std::fflush(stdout);
  ::signal(SIGINT, SIG_DFL);
  ::raise(SIGINT);
  std::abort();  // not reached
}

}  // namespace keel::cli
