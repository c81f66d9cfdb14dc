#pragma once

#include <cstdint>

#include "core/problem.h"

namespace keel::bench {

// How many scores the masks leave, over all entries, heads and queries: exactly what must be computed.
std::int64_t visible_scores(const Problem& problem);

// A visible score takes d_k multiply-adds in q·k and d_v in p·v. The softmax is not counted.
double forward_flops(const Problem& problem);

// The backward pass has five such products where the forward pass has two.
inline constexpr double kBackwardFlops = 2.5;

// A jvp has five too; a double backward pass keeps what of the first half the second needs, and has twelve.
inline constexpr double kJvpFlops = 2.5, kDoubleFlops = 6.0;

// k and v, which a call must read at least once.
double key_value_bytes(const Problem& problem);

}  // namespace keel::bench
