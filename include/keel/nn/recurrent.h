#pragma once

#include "keel/nn/module.h"
#include "keel/nn/ops.h"
#include "keel/nn/random.h"

namespace keel::nn {

// Recurrent layers with torch's equations and parameter names (weight_ih_l0 …), so that files work both ways.
// Bidirectional layers have a second set, *_reverse, that reads from the end; outputs are concatenated.

struct RecurrentSettings {
  bool bidirectional = false;
};

// What both have: one set of parameters per direction.
class KEEL_API Recurrent : public Module {
 protected:
  struct Weights {
    Tensor weight_ih, weight_hh;  // (gates·d_hidden, d_in), (gates·d_hidden, d_hidden)
    Tensor bias_ih, bias_hh;      // (gates·d_hidden)
  };
  Recurrent(std::int64_t gates, std::int64_t d_in, std::int64_t d_hidden, Random& random,
            const RecurrentSettings& settings);

  std::int64_t input_size, hidden_size;
  std::vector<Weights> directions;
};

//   r = σ(W_ir x + b_ir + W_hr h + b_hr)        z = σ(W_iz x + b_iz + W_hz h + b_hz)
//   n = tanh(W_in x + b_in + r·(W_hn h + b_hn))  h' = (1 − z)·n + z·h
class KEEL_API GRU : public Recurrent {
 public:
  GRU(std::int64_t d_in, std::int64_t d_hidden, Random& random, const RecurrentSettings& settings = {})
      : Recurrent(3, d_in, d_hidden, random, settings) {}

  struct Result {
    Tensor output;  // (B, N, D·d_hidden), D directions
    Tensor h;       // (D, B, d_hidden), after the last step
  };
  // x (B, N, d_in), h (D, B, d_hidden) or not given for 0
  Result operator()(const Tensor& x, const Tensor& h = {}) const;

  // One step, forward direction: x (B, d_in), h (B, d_hidden) → h'
  Tensor step(const Tensor& x, const Tensor& h) const;
};

//   i, f, o = σ(…)   g = tanh(…)   c' = f·c + i·g   h' = o·tanh(c')
class KEEL_API LSTM : public Recurrent {
 public:
  LSTM(std::int64_t d_in, std::int64_t d_hidden, Random& random, const RecurrentSettings& settings = {})
      : Recurrent(4, d_in, d_hidden, random, settings) {}

  struct Result {
    Tensor output;  // (B, N, D·d_hidden)
    Tensor h, c;    // (D, B, d_hidden)
  };
  Result operator()(const Tensor& x, const Tensor& h = {}, const Tensor& c = {}) const;

  // One step, forward direction; returns h' and c'.
  std::pair<Tensor, Tensor> step(const Tensor& x, const Tensor& h, const Tensor& c) const;
};

}  // namespace keel::nn
