#pragma once

#include <cstdint>

namespace keel::lab {

// Expected entropy, in nats, of the softmax of n independent normal scores of standard deviation sigma. No sampling: by
// quadrature of
//   E[ln Z]   = ∫ (e^−t − φ(t)ⁿ) dt/t                   Z = Σ e^s,  φ(t) = E[exp(−t·e^s)]
//   E[Σ p·s]  = n ∫ E[s·e^s·exp(−t·e^s)] φ(t)ⁿ⁻¹ dt     H = ln Z − Σ p·s
double expected_entropy(std::int64_t n, double sigma);

}  // namespace keel::lab
