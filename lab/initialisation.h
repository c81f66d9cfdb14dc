#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lab/measure.h"
#include "lab/random.h"

namespace keel::lab {

// How W_Q and W_K are initialised.
struct Initialisation {
  std::string id;
  std::string name;
  std::string rule;  // variance of a weight, in words
  // Variance of an entry of W (d_model, d_k); none if q and k are drawn directly.
  double (*weight_variance)(double d_model, double d_k) = nullptr;

  // Variance of a component of q for inputs of variance 1.
  double activation_variance(double d_model, double d_k) const {
    return weight_variance == nullptr ? 1.0 : d_model * weight_variance(d_model, d_k);
  }
  // Var(q·k) = d_k·σ_q²·σ_k²
  double logit_variance(double d_model, double d_k) const {
    const double a = activation_variance(d_model, d_k);
    return d_k * a * a;
  }
};

const std::vector<Initialisation>& initialisations();

// The model size assumed by every initialisation here: GPT-2 small's, 12 heads of 64.
inline constexpr std::int64_t kModelSize = 768;

struct Projection {
  Matrix x;         // (n, d_model), unit normal; empty if q and k are drawn directly
  Matrix w_q, w_k;  // (d_model, d_k); likewise
  Matrix q, k;      // (n, d_k)
};
Projection project(const Initialisation& initialisation, Random& random, std::int64_t n, std::int64_t d_k);

}  // namespace keel::lab
