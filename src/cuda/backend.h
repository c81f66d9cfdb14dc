#pragma once

#include "plan/plan.h"

namespace keel::cuda {

// The backend of DeviceKind::cuda. It is always there, and opens libkeel_cuda on its first problem; without it, or
// without a GPU, it refuses and says why.
const Backend& backend();

}  // namespace keel::cuda
