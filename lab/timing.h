#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "lab/result.h"

namespace keel::lab {

// Processor time of the calling thread: what else the machine does has little part in it.
double thread_seconds();

// Seconds that the calling thread works on one call, the least of some batches; a long one is made once.
double time_of(const std::function<void()>& call);

// What was measured, by round.
using Rounds = std::vector<std::vector<double>>;

// The median of rounds, which a disturbance of the machine moves little, under a key; its spread as a standard
// deviation, from the quartiles. Returns the median.
double robust(Findings& times, const std::string& key, std::span<const double> rounds);

// The median, with a band of quartiles.
Point quartiles(double x, std::span<const double> rounds);
inline constexpr const char* kQuartiles = "quartiles of rounds";

// The least of rounds: what the work takes when nothing disturbs it.
Point fastest(double x, std::span<const double> rounds);

// Log-log slope of y against x.
double exponent(const std::vector<Point>& points);

}  // namespace keel::lab
