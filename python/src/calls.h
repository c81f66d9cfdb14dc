#pragma once

#include "keel/attention.h"

namespace keel::python {

// What keel._core lends to keel._torch, as a capsule of this name: one library with one set of threads serves both.
struct Calls {
  decltype(&attention) forward;
  decltype(&attention_backward) backward;
};
inline constexpr const char* kCallsName = "keel._core.calls";

}  // namespace keel::python
