#pragma once

#include "keel/nn/tensor.h"

namespace keel::nn {

// s_ij = Σ_a v_a·tanh(q_ia + k_ja):  q (B, H, N_q, d_a), k (B, H, N_k, d_a), v (d_a) → (B, H, N_q, N_k)
Tensor additive_scores(const Tensor& q, const Tensor& k, const Tensor& v);

struct Scored;
// Scores that are entirely bias: q and k are one 0 each, repeated at every position.
Scored scores_alone(const Tensor& bias);

// Raises unless x is (B, H, N, d) with this d.
void check_heads(const char* operation, const char* name, const Tensor& x, std::int64_t d);

}  // namespace keel::nn
