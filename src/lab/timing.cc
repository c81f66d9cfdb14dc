#include "lab/timing.h"

#include <algorithm>
#include <chrono>

#include "lab/statistics.h"

namespace keel::lab {
namespace {

double seconds(const std::function<void()>& call) {
  const auto start = std::chrono::steady_clock::now();
  call();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

double time_of(const std::function<void()>& call) {
  const double first = seconds(call);
  const int calls = std::clamp(static_cast<int>(4e-3 / std::max(first, 1e-7)), 1, 1000);
  if (calls == 1) return first;
  return seconds([&] {
           for (int i = 0; i < calls; ++i) call();
         }) /
         calls;
}

double robust(Findings& times, const std::string& key, std::span<const double> rounds) {
  const double middle = quantile(rounds, 0.5), width = quantile(rounds, 0.75) - quantile(rounds, 0.25);
  times.measurements[key] = {middle, width / 1.349, static_cast<std::int64_t>(rounds.size())};
  return middle;
}

}  // namespace keel::lab
