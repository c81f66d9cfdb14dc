#pragma once

#include <cstdint>
#include <memory>

#include "keel/nn/init.h"
#include "keel/nn/module.h"
#include "keel/nn/ops.h"
#include "keel/nn/random.h"

namespace keel::nn {

// x Wᵀ + b:  (…, in) → (…, out)
class KEEL_API Linear : public Module {
 public:
  struct Settings {
    bool bias = true;
    Init init = Init::torch_linear;
    std::optional<Fans> fans{};
  };
  Linear(std::int64_t in, std::int64_t out, Random& random, const Settings& settings);
  Linear(std::int64_t in, std::int64_t out, Random& random) : Linear(in, out, random, Settings{}) {}
  Tensor operator()(const Tensor& x) const { return linear(x, weight, bias); }

  Tensor weight;  // (out, in)
  Tensor bias;    // (out), or not given
};

// Row `id` of a table:  ids i64 (…) → (…, d)
class KEEL_API Embedding : public Module {
 public:
  Embedding(std::int64_t rows, std::int64_t d, Random& random, Init init = Init::unit_normal);
  Tensor operator()(const Tensor& ids) const { return embedding(weight, ids); }

  Tensor weight;  // (rows, d)
};

class KEEL_API LayerNorm : public Module {
 public:
  explicit LayerNorm(std::int64_t d, double epsilon = 1e-5);
  Tensor operator()(const Tensor& x) const { return layer_norm(x, weight, bias, epsilon_); }

  Tensor weight, bias;  // (d)

 private:
  double epsilon_;
};

// Zeroes elements while training, and passes everything on in eval(). Modules with dropout share one Random, so that a
// run is a function of its seed; to resume a run, seek it.
class KEEL_API Dropout : public Module {
 public:
  Dropout(double p, std::shared_ptr<Random> random);
  Tensor operator()(const Tensor& x) const;
  bool active() const { return training() && p_ > 0.0; }
  double p() const { return p_; }
  Random& random() const { return *random_; }

 private:
  double p_;
  std::shared_ptr<Random> random_;
};

// (n, d): sin(i/10000^(2c/d)) at column 2c, cos of the same next to it ("Attention is all you need").
KEEL_API Tensor sinusoidal_positions(std::int64_t n, std::int64_t d, DType dtype = DType::f32);

}  // namespace keel::nn
