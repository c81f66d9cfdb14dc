#pragma once

#include <optional>
#include <string>

#include "keel/nn/random.h"
#include "keel/nn/tensor.h"

namespace keel::nn {

// How a weight matrix is initialised. With fan_in inputs and fan_out outputs, the variance of a weight is
enum class Init {
  unit_normal,      // 1
  xavier_uniform,   // 2/(fan_in + fan_out); also called Glorot
  xavier_normal,    // the same
  kaiming_uniform,  // 2/fan_in; also called He
  kaiming_normal,   // the same
  lecun_normal,     // 1/fan_in
  torch_linear,     // 1/(3·fan_in), uniform: the default of torch.nn.Linear
  gpt2,             // 0.02²
};

// "xavier_uniform" and so on, both ways; an unknown name raises and lists them.
KEEL_API Init init_by_name(const std::string& name);
KEEL_API std::string name_of(Init init);

struct Fans {
  std::int64_t in = 1, out = 1;
};

// What counts as one matrix among the projections W_Q, W_K, W_V (d_model, d_model) of attention.
enum class Projection {
  square,    // each on its own: d → d
  fused,     // all three as one: d → 3d (torch.nn.MultiheadAttention)
  per_head,  // each head of each: d → d_k
};
KEEL_API Fans projection_fans(Projection projection, std::int64_t d_in, std::int64_t d_out, std::int64_t heads);

KEEL_API double init_variance(Init init, const Fans& fans);

// A weight (out, in); `fans` overrides what counts as its inputs and outputs.
KEEL_API Tensor initial(const Shape& shape, Init init, Random& random, std::optional<Fans> fans = {});

}  // namespace keel::nn
