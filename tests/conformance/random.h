#pragma once

#include "conformance/case.h"

namespace keel::conformance {

// A valid problem drawn from all features, the same for the same seed everywhere. At most about `work` multiplications
// in the scores, so that the oracle stays quick.
Case random_case(std::uint64_t seed, std::int64_t work = 200'000);

}  // namespace keel::conformance
