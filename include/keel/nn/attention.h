#pragma once

// Keel's attention as one operation on tensors: its kernels run forward and backward, and gradients reach q, k, v,
// bias, scale and sinks. What each option means exactly is in keel/attention.h.

#include <cstdint>
#include <optional>
#include <vector>

#include "keel/attention.h"
#include "keel/nn/tensor.h"

namespace keel::nn {

struct AttentionOptions {
  std::optional<double> scale{};    // on q·k; 1/√d_k by default
  Tensor scale_tensor{};            // instead: (B, H, N_q), any size may be 1. Has a gradient
  std::optional<double> softcap{};  // c·tanh(s/c)
  Tensor mask{};                    // bool, true = attend: (B, H, N_q, N_k), any size may be 1; or (N_q, N_k)
  Tensor bias{};                    // added to the scores, shaped like mask. Has a gradient
  Causal causal = Causal::none;
  Window window{};
  std::vector<std::int64_t> q_lengths{}, k_lengths{};  // padding: how many rows of each batch entry are real
  Tensor alibi{};                                      // (H)
  Tensor sinks{};                                      // (H). Has a gradient
  double dropout = 0.0;
  std::uint64_t seed = 0;
};

// What a call can report, off the tape. Statistics are (B, H, N_q).
struct AttentionReport {
  bool with_weights = false;  // set by the caller: whether to fill `weights`, which takes N_q × N_k
  Tensor weights{};           // (B, H, N_q, N_k)
  Tensor lse{}, max_logit{}, entropy{}, max_weight{}, logit_mean{}, logit_var{};
  std::vector<HeadStatistics> heads{};  // B × H of them
};

// q (B, H_q, N_q, d_k), k (B, H_kv, N_k, d_k), v (B, H_kv, N_k, d_v) → (B, H_q, N_q, d_v). Any strides: a transposed
// (B, N, H, d) needs no copy, and the result then has q's memory layout.
KEEL_API Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& options = {},
                          AttentionReport* report = nullptr);

}  // namespace keel::nn
