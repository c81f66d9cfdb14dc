#include "keel/nn/layers.h"

#include <cmath>

#include "core/element.h"
#include "nn/check.h"
#include "nn/tape.h"

namespace keel::nn {

Linear::Linear(std::int64_t in, std::int64_t out, Random& random, const Settings& settings) {
  if (in < 1 || out < 1) refuse("Linear", "in and out: expected at least 1, got ", in, " and ", out);
  weight = parameter("weight", initial({out, in}, settings.init, random, settings.fans));
  if (!settings.bias) return;
  // torch's Linear draws its bias too; all other initialisers set it to 0.
  const double bound = settings.init == Init::torch_linear ? 1.0 / std::sqrt(static_cast<double>(in)) : 0.0;
  bias = parameter("bias", bound > 0 ? random.uniform({out}, -bound, bound) : Tensor::zeros({out}));
}

Embedding::Embedding(std::int64_t rows, std::int64_t d, Random& random, Init init) {
  if (rows < 1 || d < 1) refuse("Embedding", "rows and d: expected at least 1, got ", rows, " and ", d);
  weight = parameter("weight", initial({rows, d}, init, random));
}

LayerNorm::LayerNorm(std::int64_t d, double epsilon) : epsilon_(epsilon) {
  if (d < 1) refuse("LayerNorm", "d: expected at least 1, got ", d);
  weight = parameter("weight", Tensor::full({d}, 1.0));
  bias = parameter("bias", Tensor::zeros({d}));
}

Dropout::Dropout(double p, std::shared_ptr<Random> random) : p_(p), random_(std::move(random)) {
  if (!(p >= 0.0 && p <= 1.0)) refuse("Dropout", "p: expected a probability from 0 to 1, got ", p);
  if (p > 0.0 && random_ == nullptr) refuse("Dropout", "random: expected one, got none");
}

Tensor Dropout::operator()(const Tensor& x) const { return active() ? dropout(x, p_, *random_) : x; }

Tensor sinusoidal_positions(std::int64_t n, std::int64_t d, DType dtype) {
  Tensor y = Tensor::zeros({n, d}, dtype);
  check_floating("sinusoidal_positions", "dtype", y);
  for (std::int64_t i = 0; i < n; ++i) {
    for (std::int64_t c = 0; c < d; ++c) {
      const std::int64_t pair = c - c % 2;
      const double angle =
          static_cast<double>(i) / std::pow(10000.0, static_cast<double>(pair) / static_cast<double>(d));
      store(y.impl()->storage->data(), dtype, i * d + c, c % 2 == 0 ? std::sin(angle) : std::cos(angle));
    }
  }
  return y;
}

}  // namespace keel::nn
