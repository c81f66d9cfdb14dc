#pragma once

#include "plan/plan.h"

namespace keel {

// The backends of this process: the CPU's from the start, others as they are set.
Backends& backends();

}  // namespace keel
