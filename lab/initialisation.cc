#include "lab/initialisation.h"

#include <cmath>

namespace keel::lab {

const std::vector<Initialisation>& initialisations() {
  static const std::vector<Initialisation> all = {
      {"unit", "unit normal q and k", "q and k drawn from N(0, 1), no projection", nullptr},
      {"xavier_fused", "Xavier (QKV fused)", "2 / (d + 3d): one matrix d → 3d",
       [](double d, double) { return 2 / (d + 3 * d); }},
      {"xavier_square", "Xavier (square)", "2 / (d + d): one matrix d → d each for Q and K",
       [](double d, double) { return 2 / (d + d); }},
      {"xavier_head", "Xavier (per head)", "2 / (d + d_k): one matrix d → d_k per head",
       [](double d, double d_k) { return 2 / (d + d_k); }},
      {"kaiming", "Kaiming", "2 / d", [](double d, double) { return 2 / d; }},
      {"lecun", "LeCun", "1 / d", [](double d, double) { return 1 / d; }},
      {"torch_linear", "PyTorch Linear", "1 / (3d)", [](double d, double) { return 1 / (3 * d); }},
      {"gpt2", "GPT-2", "0.02²", [](double, double) { return 0.02 * 0.02; }},
  };
  return all;
}

Projection project(const Initialisation& initialisation, Random& random, std::int64_t n, std::int64_t d_k) {
  Projection p;
  if (initialisation.weight_variance == nullptr) {
    p.q = normal_matrix(random, n, d_k);
    p.k = normal_matrix(random, n, d_k);
    return p;
  }
  const double sd = std::sqrt(initialisation.weight_variance(kModelSize, static_cast<double>(d_k)));
  p.x = normal_matrix(random, n, kModelSize);
  p.w_q = normal_matrix(random, kModelSize, d_k, sd);
  p.w_k = normal_matrix(random, kModelSize, d_k, sd);
  p.q = multiply(p.x, p.w_q);
  p.k = multiply(p.x, p.w_k);
  return p;
}

}  // namespace keel::lab
