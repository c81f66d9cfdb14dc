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

Point quartiles(double x, std::span<const double> rounds) { return quantile_point(x, rounds, 0.25, 0.75); }

double order(std::span<const Point> points) {
  const auto last = points.last(3);
  const double before = last[1].y - last[0].y, after = last[2].y - last[1].y;
  if (before <= 0 || after <= 0) return 0;
  return std::log(after / before) / std::log(last[2].x / last[1].x);
}

double robust_order(Findings& times, const std::string& key, std::span<const double> x, const Rounds& y) {
  std::vector<double> orders;
  for (std::size_t round = 0; round < y.front().size(); ++round) {
    std::vector<Point> points;
    for (std::size_t i = 0; i < x.size(); ++i) points.push_back({x[i], y[i][round], y[i][round], y[i][round]});
    orders.push_back(order(points));
  }
  return robust(times, key, orders);
}

}  // namespace keel::lab
