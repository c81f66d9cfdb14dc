#pragma once

#include <vector>

#include "core/problem.h"

namespace keel::conformance {

// Which rows see a key, (B, H_q, N_q), and which keys are seen by a query, (B, H_kv, N_k), as the masks decide.
struct Visibility {
  std::vector<char> rows, keys;
};
Visibility visibility_of(const Problem& problem);

}  // namespace keel::conformance
