#pragma once

#if defined(__SSE__)
#include <xmmintrin.h>
#endif

namespace keel::cpu {

// While it exists, if `wanted`, results of this thread below the smallest normal number are 0. Weights so small count
// for nothing, and some cores take some hundred cycles for each vector that has one (Machine::slow_denormals). On
// others this costs more than it saves: on a Zen 5 the changes of mode were a sixth of a call of 16 × 64.
class FlushToZero {
 public:
#if defined(__SSE__)
  explicit FlushToZero(bool wanted) : wanted_(wanted) {
    if (!wanted_) return;
    before_ = _mm_getcsr();
    _mm_setcsr(before_ | _MM_FLUSH_ZERO_ON);
  }
  ~FlushToZero() {
    if (wanted_) _mm_setcsr(before_);
  }

 private:
  const bool wanted_;
  unsigned before_ = 0;

 public:
#else
  explicit FlushToZero(bool) {}
#endif
  FlushToZero(const FlushToZero&) = delete;
  FlushToZero& operator=(const FlushToZero&) = delete;
};

}  // namespace keel::cpu
