#pragma once

#include <functional>

#include "conformance/compare.h"
#include "keel/ring.h"

// A call computed by several ranks: each gets its rows of the inputs in arrays of its own, or slices of the caller's
// where its rows stand together, and what it computes goes to their place in the results.
namespace keel::conformance {

// Runs the work of each rank, as ring::run_threads does.
using Run = std::function<void(int size, const std::function<void(ring::Transport&)>&)>;

struct Ranks {
  int size = 1;
  ring::Layout layout = ring::Layout::zigzag;
  ring::Mode mode = ring::Mode::ring;
  Run run = ring::run_threads;
  int threads = 1;  // of each rank

  ring::Sharding sharding(std::int64_t n_q, std::int64_t n_k) const { return {n_q, n_k, layout, mode}; }
};

std::string describe(const Ranks& ranks);

Forward over_ranks(const Ranks& ranks);
Backward backward_over_ranks(const Ranks& ranks);

}  // namespace keel::conformance
