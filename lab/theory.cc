#include "lab/theory.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace keel::lab {

double expected_entropy(std::int64_t n, double sigma) {
  // Trapezoids over s, a normal score, and over u = ln t. The integrands over u differ from 0 only where e^(u+s) passes
  // 1 for a likely s, or where φⁿ has not yet fallen to 0.
  struct Score {
    double s, exp_s, probability;
  };
  const double step = std::min(sigma / 8, 0.25), reach = 9 * sigma;
  std::vector<Score> scores;
  double total = 0;
  for (double s = -reach; s <= reach; s += step) {
    scores.push_back({s, std::exp(s), std::exp(-0.5 * s * s / (sigma * sigma))});
    total += scores.back().probability;
  }

  const double du = 0.25, count = static_cast<double>(n);
  double log_z = 0, mean_s = 0;
  for (double u = -reach - 40; u <= reach + 6; u += du) {
    const double t = std::exp(u);
    double phi = 0, tilted = 0;
    for (const Score& score : scores) {
      const double x = t * score.exp_s;
      if (x > 700) break;  // exp(−x) is 0, and so it is for all larger scores
      const double survival = score.probability / total * std::exp(-x);
      phi += survival;
      tilted += score.s * x * survival;
    }
    log_z += du * (std::exp(-t) - std::pow(phi, count));
    mean_s += du * count * tilted * std::pow(phi, count - 1);
  }
  return log_z - mean_s;
}

}  // namespace keel::lab
