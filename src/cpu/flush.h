#pragma once

#if defined(__SSE__)
#include <xmmintrin.h>
#endif

namespace keel::cpu {

// While it exists, results of this thread below the smallest normal number are 0. Weights so small count for nothing,
// and an Intel core takes some hundred cycles for each vector that has one. On x86; elsewhere they cost no more.
class FlushToZero {
 public:
#if defined(__SSE__)
  FlushToZero() : before_(_mm_getcsr()) { _mm_setcsr(before_ | _MM_FLUSH_ZERO_ON); }
  ~FlushToZero() { _mm_setcsr(before_); }

 private:
  const unsigned before_;

 public:
#else
  FlushToZero() = default;
  ~FlushToZero() = default;
#endif
  FlushToZero(const FlushToZero&) = delete;
  FlushToZero& operator=(const FlushToZero&) = delete;
};

}  // namespace keel::cpu
