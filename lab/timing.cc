#include "lab/timing.h"

#include <time.h>

#include <algorithm>
#include <cmath>

#include "lab/statistics.h"

namespace keel::lab {
namespace {

constexpr double kLong = 0.05;  // seconds: a call this long is timed once

double seconds(const std::function<void()>& call) {
  const double start = thread_seconds();
  call();
  return thread_seconds() - start;
}

}  // namespace

double thread_seconds() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

double time_of(const std::function<void()>& call) {
  constexpr double kBatch = 1.5e-3;  // seconds
  const double first = seconds(call);
  const int calls = std::clamp(static_cast<int>(kBatch / std::max(first, 1e-7)), 1, 1000);
  double fastest = first;
  for (int batch = 0; batch < 3 && first < kLong; ++batch) {
    fastest = std::min(fastest, seconds([&] {
                                  for (int i = 0; i < calls; ++i) call();
                                }) / calls);
  }
  return fastest;
}

double robust(Findings& times, const std::string& key, std::span<const double> rounds) {
  const double middle = quantile(rounds, 0.5), width = quantile(rounds, 0.75) - quantile(rounds, 0.25);
  times.measurements[key] = {middle, width / 1.349, static_cast<std::int64_t>(rounds.size())};
  return middle;
}

Point fastest(double x, std::span<const double> rounds) {
  const double least = *std::min_element(rounds.begin(), rounds.end());
  return {x, least, least, least};
}

Point quartiles(double x, std::span<const double> rounds) { return quantile_point(x, rounds, 0.25, 0.75); }

double exponent(const std::vector<Point>& points) {
  std::vector<double> x, y;
  for (const Point& p : points) {
    x.push_back(std::log(p.x));
    y.push_back(std::log(p.y));
  }
  return slope(x, y);
}

}  // namespace keel::lab
