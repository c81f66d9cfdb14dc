#include "lab/breaks/breaks.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "lab/claims/criteria.h"
#include "lab/statistics.h"

namespace keel::lab {

std::string name_of(Change change) {
  return change == Change::less ? "less" : change == Change::same ? "same" : "more";
}

std::string name_of(Version version) { return version == Version::healthy ? "healthy" : "broken"; }

Change Observed::change() const {
  std::vector<double> apart;  // seed by seed: both versions start from the same numbers
  for (std::size_t i = 0; i < healthy.size(); ++i) apart.push_back(broken[i] - healthy[i]);
  const double difference = mean(apart);
  const double size = std::max(std::abs(mean(healthy)), std::abs(mean(broken)));
  const double error = criteria::kErrors * standard_deviation(apart) / std::sqrt(static_cast<double>(apart.size()));
  if (std::abs(difference) <= std::max(criteria::kEqual * size, error)) return Change::same;
  return difference < 0 ? Change::less : Change::more;
}

std::vector<Observed> compare(const Seen& healthy, const Seen& broken) {
  std::vector<Observed> all;
  for (std::size_t i = 0; i < healthy.values.size(); ++i) all.push_back({healthy.values[i], broken.values[i]});
  return all;
}

std::string spread_text(double mean, double sd) {
  return number_text(mean) + (sd > 1e-12 * std::abs(mean) ? fmt::format(" ± {:.2g}", sd) : "");
}

Seen over_seeds(std::size_t seeds, const std::function<std::vector<double>(std::size_t seed)>& look) {
  Seen seen;
  for (std::size_t seed = 0; seed < seeds; ++seed) {
    const std::vector<double> values = look(seed);
    seen.values.resize(values.size());
    for (std::size_t i = 0; i < values.size(); ++i) seen.values[i].push_back(values[i]);
  }
  return seen;
}

Figure weights_figure(const Matrix& weights) {
  return {"rows", "Rows of weights", "A row per query, a column per key.",
          Heatmap{"query", "key", "weight", std::vector<std::string>(static_cast<std::size_t>(weights.rows)),
                  std::vector<std::string>(static_cast<std::size_t>(weights.columns)), weights.values}};
}

const std::vector<Break>& breaks() {
  static const std::vector<Break> all = {no_scale(), sqrt_d_model(), mask_before_scale_in_f16(),
                                         causal_off_by_alignment(), softmax_over_queries()};
  return all;
}

const Break* find_break(const std::string& name) {
  const auto found = std::find_if(breaks().begin(), breaks().end(), [&](const Break& b) { return b.name == name; });
  return found == breaks().end() ? nullptr : &*found;
}

}  // namespace keel::lab
