#include "bench/summary.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace keel::bench {

Summary summary_of(std::span<const double> values) {
  std::vector<double> sorted(values.begin(), values.end());
  std::sort(sorted.begin(), sorted.end());
  const auto at = [&](double share) {
    const double place = share * static_cast<double>(sorted.size() - 1);
    const auto below = static_cast<std::size_t>(place);
    const double rest = place - static_cast<double>(below);
    return rest == 0 ? sorted[below] : sorted[below] + rest * (sorted[below + 1] - sorted[below]);
  };
  return {.median = at(0.5), .lower = at(0.25), .upper = at(0.75), .least = sorted.front(), .greatest = sorted.back()};
}

}  // namespace keel::bench
