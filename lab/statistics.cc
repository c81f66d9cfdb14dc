#include "lab/statistics.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace keel::lab {

double mean(std::span<const double> values) {
  double sum = 0;
  for (const double x : values) sum += x;
  return sum / static_cast<double>(values.size());
}

double standard_deviation(std::span<const double> values) {
  if (values.size() < 2) return 0;
  const double centre = mean(values);
  double sum = 0;
  for (const double x : values) sum += (x - centre) * (x - centre);
  return std::sqrt(sum / static_cast<double>(values.size() - 1));
}

double confidence(std::span<const double> values) {
  if (values.size() < 2) return 0;
  // t at 97.5 %, by degrees of freedom; beyond the table its expansion in 1/ν.
  constexpr std::array kStudent = {12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228};
  const double freedom = static_cast<double>(values.size() - 1);
  const double t = values.size() - 1 <= kStudent.size() ? kStudent[values.size() - 2]
                                                        : 1.960 + 2.37 / freedom + 2.8 / (freedom * freedom);
  return t * standard_deviation(values) / std::sqrt(freedom + 1);
}

double quantile(std::span<const double> values, double q) {
  std::vector<double> sorted(values.begin(), values.end());
  std::sort(sorted.begin(), sorted.end());
  const double place = q * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<std::size_t>(place);
  const std::size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (place - static_cast<double>(below)) * (sorted[above] - sorted[below]);
}

std::vector<double> joined(std::span<const std::vector<double>> parts) {
  std::vector<double> all;
  for (const auto& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

double slope(std::span<const double> x, std::span<const double> y) {
  const double mx = mean(x), my = mean(y);
  double xy = 0, xx = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    xy += (x[i] - mx) * (y[i] - my);
    xx += (x[i] - mx) * (x[i] - mx);
  }
  return xy / xx;
}

std::vector<double> shares(std::span<const double> values, std::span<const double> edges) {
  std::vector<double> bins(edges.size() - 1, 0.0);
  for (const double x : values) {
    if (x < edges.front() || x > edges.back()) continue;
    const auto above = std::upper_bound(edges.begin(), edges.end(), x);
    const auto bin = std::min<std::ptrdiff_t>(above - edges.begin() - 1, static_cast<std::ptrdiff_t>(bins.size()) - 1);
    bins[static_cast<std::size_t>(bin)] += 1.0 / static_cast<double>(values.size());
  }
  return bins;
}

}  // namespace keel::lab
