#pragma once

#include "core/problem.h"
#include "ring/link.h"

namespace keel::ring {

// The hashes of what all ranks must have in common. `requests` says which results or gradients are wanted.
Terms terms_of(const Sharding& sharding, const Problem& problem, std::uint64_t requests);

// This rank's part of a call as a valid problem of its own: positions aside, of which the slices have theirs. Raises
// keel::Error for an invalid argument.
Problem check(const Link& link, const Sharding& sharding, const Tensors& tensors, const Options& options,
              const Outputs& outputs);
BackwardProblem check(const Link& link, const Sharding& sharding, const BackwardInputs& inputs,
                      const Gradients& gradients, const Options& options);

}  // namespace keel::ring
