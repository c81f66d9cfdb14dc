#pragma once

#include "plan/plan.h"

namespace keel::cpu {

// The backend of DeviceKind::cpu, which serves every problem.
const Backend& backend();

}  // namespace keel::cpu
