#pragma once

#include <fmt/format.h>

#include "lab/translate/comparison.h"

// What the parts of report_on() share: measurements as figures and sentences read them.
namespace keel::lab::translate {

// What `get` reads from each seed.
template <class Get>
std::vector<double> each(const std::vector<Found>& found, const Get& get) {
  std::vector<double> values;
  for (const Found& one : found) values.push_back(get(one));
  return values;
}

// "translate.additive.bleu"
std::string key_of(const Arm& arm, const char* what);

std::string plus_minus(const Measurement& m, int digits = 1);  // "97.7 ± 0.1"
std::string percent(const Measurement& m);

// The arm with the most of `what`; with a sign of −1 the least.
const Arm& best_by(const Comparison& c, const Findings& in, const char* what, double sign = 1);

// dot next to scaled dot, over d_k.
struct HeadSizes {
  std::vector<std::int64_t> sizes;
  const Result& result;

  const Measurement& at(const char* look, std::int64_t d, const char* what) const {
    return result.measurements.at(fmt::format("translate.{}-{}.{}", look, d, what));
  }
  Series series(const char* name, const char* look, const char* what) const {
    Series one{name, {}};
    for (const std::int64_t d : sizes) {
      const auto& [value, spread, repeats] = at(look, d, what);
      one.points.push_back({static_cast<double>(d), value, value - spread, value + spread});
    }
    return one;
  }
};

// The sizes at which both were run.
HeadSizes head_sizes(const Comparison& c, const Result& result);

// Measurements of every arm; those that depend on a clock are in `times`.
void measure(const Comparison& c, Result& result);

// All figures. The measurements must be there.
void draw(const Comparison& c, Result& result);

}  // namespace keel::lab::translate
