#pragma once

#include <span>
#include <vector>

namespace keel::lab {

double mean(std::span<const double> values);

// Standard deviation of a sample (divided by n − 1); 0 for fewer than two values.
double standard_deviation(std::span<const double> values);

// Half the width of the 95 % confidence interval of the mean of normal values: Student's t · s/√n; 0 for fewer than
// two.
double confidence(std::span<const double> values);

// Linear between order statistics: quantile(x, 0.5) is the median. `values` in any order, at least one.
double quantile(std::span<const double> values, double q);

// All of `parts`, concatenated.
std::vector<double> joined(std::span<const std::vector<double>> parts);

// One member of each of `items`.
template <class Item>
std::vector<double> column(const std::vector<Item>& items, double Item::*member) {
  std::vector<double> values;
  for (const Item& item : items) values.push_back(item.*member);
  return values;
}

// Slope of the least-squares line through (x, y).
double slope(std::span<const double> x, std::span<const double> y);

// Share of values that lie in each bin of `edges` (ascending, one more than bins); values outside count to the whole.
std::vector<double> shares(std::span<const double> values, std::span<const double> edges);

}  // namespace keel::lab
