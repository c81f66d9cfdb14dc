#pragma once

#include "core/problem.h"

// The oracle: attention in float64, plain loops, every feature. All other code in Keel is checked against it; it
// never serves a call. One thread, O(n_k) memory per row plus float64 copies of one head of k and v.
namespace keel::reference {

void attention(const Problem& problem);
void attention_backward(const BackwardProblem& problem);
void attention_tangents(const TangentProblem& problem);  // attention_jvp() and attention_double_backward()
void merge(const MergeProblem& problem);

}  // namespace keel::reference
