#pragma once

#include <cstdint>

#include "lab/json.h"

namespace keel::lab {

// For a page without kernels: rows of attention at a few head sizes and numbers of keys, and maps of 16 rows, unscaled
// and divided by √d_k, as web/live.js reads them.
Json recorded_rows(std::uint64_t seed);

}  // namespace keel::lab
