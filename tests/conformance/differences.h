#pragma once

#include <gtest/gtest.h>

#include <cmath>

#include "conformance/compare.h"
#include "conformance/expected.h"
#include "conformance/generator.h"
#include "conformance/random.h"
#include "core/element.h"

// Gradients against central differences, in float64, for every input that has one.
//   L = Σ dout·out + Σ dlse·lse (over rows that see a key)
//   along a unit vector u of one input:   (L(x + h·u) − L(x − h·u)) / 2h   against   ⟨dx, u⟩
namespace keel::conformance {

inline constexpr double kStep = 1e-5;

// A random problem in float64 with all features, small, with finite values where they are seen.
inline Case gradient_case(std::uint64_t seed) {
  Case c = random_case(seed, 1500);
  c.dtype = DType::f64;
  if (c.values != Values::nan_hidden && c.values != Values::flat) c.values = Values::normal;
  if (c.bias == BiasKind::minus_1e30 || c.bias == BiasKind::plus_inf) c.bias = BiasKind::normal;
  c.bias_low = -INFINITY;
  c.bias_f32 = false;
  c.gradients = true;
  return c;
}

class Loss {
 public:
  Loss(const Instance& instance, Forward run)
      : instance_(instance), run_(std::move(run)), inputs_(instance.backward_inputs()) {}

  double operator()(const Options& options) const {
    const Case& c = instance_.description();
    Dense out({c.batch, c.q_heads, c.n_q, c.d_v}), lse({c.batch, c.q_heads, c.n_q, 1});
    run_(inputs_.q, inputs_.k, inputs_.v, out.tensor(), options, {.lse = lse.rows()});
    double sum = 0.0;
    const Dense dout = read(inputs_.dout);
    for (std::size_t at = 0; at < out.values.size(); ++at) sum += dout.values[at] * out.values[at];
    if (!inputs_.dlse.given()) return sum;
    const Dense dlse = read(inputs_.dlse);
    for (std::size_t at = 0; at < lse.values.size(); ++at) {
      if (std::isfinite(lse.values[at])) sum += dlse.values[at] * lse.values[at];
    }
    return sum;
  }

 private:
  const Instance& instance_;
  Forward run_;
  BackwardInputs inputs_;
};

// Moves the finite elements of a view along `direction` and back; a dimension of stride 0 is one place.
template <std::size_t Rank>
class Mover {
 public:
  explicit Mover(const BasicView<Rank, const void*>& view) : view_(view), original_(read_sum(view)) {}
  const Dense& original() const { return original_; }
  void move(const Dense& direction, double step) const {
    std::size_t at = 0;
    const auto& s = original_.shape;
    std::array<std::int64_t, 4> strides{};
    for (std::size_t i = 0; i < Rank; ++i) strides[i] = view_.strides[i];
    for (std::int64_t b = 0; b < s[0]; ++b) {
      for (std::int64_t h = 0; h < s[1]; ++h) {
        for (std::int64_t n = 0; n < s[2]; ++n) {
          for (std::int64_t d = 0; d < s[3]; ++d, ++at) {
            store(const_cast<void*>(view_.data), view_.dtype,
                  b * strides[0] + h * strides[1] + n * strides[2] + d * strides[3],
                  original_.values[at] + (step == 0.0 ? 0.0 : step * direction.values[at]));
          }
        }
      }
    }
  }

 private:
  BasicView<Rank, const void*> view_;
  Dense original_;
};

struct Check {
  const Instance& instance;
  Loss loss;
  Generator random;
  int compared = 0;

  Check(const Instance& x, const Forward& run) : instance(x), loss(x, run), random(x.description().seed, 0x6D) {}

  void compare(const char* name, double difference, const Dense& gradient, const Dense& direction) {
    double product = 0.0, square = 0.0;
    for (std::size_t at = 0; at < gradient.values.size(); ++at) {
      product += gradient.values[at] * direction.values[at];
      square += gradient.values[at] * gradient.values[at];
    }
    EXPECT_NEAR(difference, product, 1e-6 * std::max(std::sqrt(square), 1e-2)) << "gradient with respect to " << name;
    ++compared;
  }

  Dense unit_direction(const Dense& like) {
    Dense u = like;
    double square = 0.0;
    for (double& value : u.values) {
      value = random.normal();
      square += value * value;
    }
    for (double& value : u.values) value /= std::sqrt(square);
    return u;
  }

  template <std::size_t Rank>
  void input(const char* name, const BasicView<Rank, const void*>& view, const Dense& gradient) {
    if (!view.given() || gradient.values.empty()) return;
    const Mover<Rank> mover(view);
    Dense u = unit_direction(mover.original());
    ASSERT_EQ(u.shape, gradient.shape) << name;
    for (std::size_t at = 0; at < u.values.size(); ++at) {
      // What is NaN or Inf is hidden: it must have no gradient, and cannot be moved.
      if (std::isfinite(mover.original().values[at])) continue;
      u.values[at] = 0.0;
      EXPECT_EQ(gradient.values[at], 0.0) << name << " of a value that masks hide";
    }
    mover.move(u, kStep);
    const double above = loss(instance.options());
    mover.move(u, -kStep);
    const double below = loss(instance.options());
    mover.move(u, 0.0);
    compare(name, (above - below) / (2 * kStep), gradient, u);
  }

  void scale_number(const Dense& gradient) {
    Options options = instance.options();
    const double scale = options.scale.value_or(1.0 / std::sqrt(static_cast<double>(instance.description().d_k)));
    options.scale = scale + kStep;
    const double above = loss(options);
    options.scale = scale - kStep;
    const double below = loss(options);
    Dense u = gradient;
    u.values = {1.0};
    compare("scale", (above - below) / (2 * kStep), gradient, u);
  }

  void all(const ExpectedGradients& g) {
    input("q", instance.q(), g.dq);
    input("k", instance.k(), g.dk);
    input("v", instance.v(), g.dv);
    input("bias", instance.options().bias, g.dbias);
    input("sinks", instance.options().sinks, g.dsinks);
    input("relative_bias", instance.options().relative_bias, g.drelative);
    if (instance.options().scale_tensor.given()) {
      input("scale_tensor", instance.options().scale_tensor, g.dscale);
    } else {
      scale_number(g.dscale);
    }
  }
};

}  // namespace keel::conformance
