#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "lab/result.h"

namespace keel::lab {

// Processor time of the calling thread: other load on the machine hardly affects it.
double thread_seconds();

// Processor seconds of one call, the minimum of some batches; a long call is made once.
double time_of(const std::function<void()>& call);

// Measurements by round.
using Rounds = std::vector<std::vector<double>>;

// Records the median of rounds, which is robust to disturbances, under a key, with its spread as a standard deviation
// derived from the quartiles. Returns the median.
double robust(Findings& times, const std::string& key, std::span<const double> rounds);

// The median, with a band of quartiles.
Point quartiles(double x, std::span<const double> rounds);
inline constexpr const char* kQuartiles = "quartiles of rounds";

// The power p of y = a + b·xᵖ, by the last three points, whose x grow by the same factor: whatever the constant part a
// is, the asymptote counts. 0 where y does not grow.
double order(std::span<const Point> points);
// The same round by round, recorded with `robust`.
double robust_order(Findings& times, const std::string& key, std::span<const double> x, const Rounds& y);

}  // namespace keel::lab
