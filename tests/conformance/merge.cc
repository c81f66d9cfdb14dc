#include "conformance/merge.h"

#include <cmath>
#include <vector>

#include "conformance/tolerance.h"
#include "core/message.h"
#include "reference/reference.h"

namespace keel::conformance {
namespace {

// "" or the first element that is further from what is expected than allowed(its index).
template <class Allowed>
std::string first_mismatch(const char* name, const Dense& got, const Dense& want, Allowed allowed) {
  for (std::size_t at = 0; at < want.values.size(); ++at) {
    const double x = got.values[at], y = want.values[at];
    const bool finite = std::isfinite(x) && std::isfinite(y);
    const bool same = finite ? std::fabs(x - y) <= allowed(at) : std::isnan(y) ? std::isnan(x) : x == y;
    if (!same) return concat(name, " at ", at, ": expected ", y, ", got ", x, "\n");
  }
  return {};
}

}  // namespace

ExpectedMerge compute_expected(MergeProblem problem) {
  const std::array<std::int64_t, 4> shape = problem.out.shape;
  ExpectedMerge e{Dense(shape), Dense(shape), {}};
  problem.out = e.out.tensor();
  for (std::size_t s = 0; s < kRowStatisticCount; ++s) {
    MutableRowView& rows = problem.outputs.*kRowStatistics[s].result;
    if (!rows.given()) continue;
    e.rows[s] = Dense({shape[0], shape[1], shape[2], 1});
    rows = e.rows[s].rows();
  }
  reference::merge(problem);
  std::vector<Dense> sizes;
  for (const Partial& part : problem.parts) {
    Dense& size = sizes.emplace_back(read(part.out));
    for (double& x : size.values) x = std::fabs(x);
  }
  for (std::size_t p = 0; p < sizes.size(); ++p) problem.parts[p].out = sizes[p].tensor();
  problem.out = e.size.tensor();
  problem.outputs = {};
  reference::merge(problem);
  return e;
}

std::string merge_mismatch(const MergeProblem& problem, const ExpectedMerge& e) {
  const DType dtype = problem.out.dtype;
  const Tolerance t = tolerance_of(dtype);
  const double terms =
      static_cast<double>(problem.parts.size()) + kMergeRoundings + (dtype == DType::f64 ? kMergeExponent64 : 0.0);
  const double least = dtype == DType::f64 ? 1e-300 : dtype == DType::f16 ? 0x1p-25 : 1e-36;
  std::string text = first_mismatch("out", read(problem.out), e.out, [&](std::size_t at) {
    return terms * t.eps * e.size.values[at] + t.storage * std::fabs(e.out.values[at]) + least;
  });
  for (std::size_t s = 0; s < kRowStatisticCount; ++s) {
    const MutableRowView& rows = problem.outputs.*kRowStatistics[s].result;
    if (!rows.given()) continue;
    text += first_mismatch(kRowStatistics[s].name, read(rows), e.rows[s], [&](std::size_t at) {
      return is_count(s) ? 0.0 : kMergeStatistic * t.eps * (1.0 + std::fabs(e.rows[s].values[at]));
    });
  }
  return text;
}

}  // namespace keel::conformance
