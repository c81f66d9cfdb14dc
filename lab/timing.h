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

// The minimum of rounds: what the work takes undisturbed.
Point fastest(double x, std::span<const double> rounds);

// Log-log slope of y against x.
double exponent(const std::vector<Point>& points);

}  // namespace keel::lab
