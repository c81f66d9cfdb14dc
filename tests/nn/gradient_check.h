#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "keel/nn/nn.h"

namespace keel::test {

// A value that is neither small nor regular in each element; the sum of it is what is differentiated.
inline double weighted(const nn::Tensor& y) {
  const std::vector<double> values = y.values();
  nn::Random random(7, "seed of the gradient");
  double total = 0;
  for (const double value : values) total += value * (0.5 + random.uniform());
  return total;
}

inline nn::Tensor weights_of(const nn::Tensor& y) {
  nn::Random random(7, "seed of the gradient");
  std::vector<double> w(static_cast<std::size_t>(y.elements()));
  for (double& value : w) value = 0.5 + random.uniform();
  return nn::Tensor::of(y.shape(), w);
}

// Compares the gradients of f with respect to every input element with central differences. Inputs are dense f64
// leaves; f must give the same for the same inputs.
inline void expect_gradients(const std::string& what, std::vector<nn::Tensor> inputs,
                             const std::function<nn::Tensor(const std::vector<nn::Tensor>&)>& f) {
  SCOPED_TRACE(what);
  constexpr double kStep = 1e-5, kTolerance = 1e-7;
  for (nn::Tensor& x : inputs) {
    x.require_grad();
    x.zero_grad();
  }
  const nn::Tensor y = f(inputs);
  ASSERT_TRUE(y.requires_grad());
  y.backward(weights_of(y));
  const nn::NoGrad off;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    ASSERT_TRUE(inputs[i].grad().given()) << "no gradient with respect to input " << i;
    ASSERT_EQ(inputs[i].grad().shape(), inputs[i].shape());
    const std::vector<double> gradient = inputs[i].grad().values();
    const auto x = inputs[i].data<double>();
    for (std::size_t e = 0; e < x.size(); ++e) {
      const double at = x[e];
      x[e] = at + kStep;
      const double above = weighted(f(inputs));
      x[e] = at - kStep;
      const double below = weighted(f(inputs));
      x[e] = at;
      const double expected = (above - below) / (2 * kStep);
      ASSERT_NEAR(gradient[e], expected, kTolerance * std::max(1.0, std::abs(expected)))
          << "input " << i << " " << nn::shape_text(inputs[i].shape()) << ", element " << e;
    }
  }
}

inline nn::Tensor normal(const nn::Shape& shape, const std::string& stream = "x") {
  return nn::Random(1, stream).normal(shape, 1.0, 0.0, DType::f64);
}

}  // namespace keel::test
