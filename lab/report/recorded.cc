#include "lab/report/recorded.h"

#include <fmt/format.h>

#include <array>
#include <cmath>

#include "lab/measure.h"

namespace keel::lab {
namespace {

constexpr std::array<std::int64_t, 6> kSizes = {1, 4, 16, 64, 256, 1024};
constexpr std::array<std::int64_t, 4> kKeys = {2, 4, 16, 64};
constexpr std::int64_t kRows = 16, kValueSize = 16;

// Four digits: it is drawn, not computed with.
Json rounded(std::span<const double> values) {
  Json list = Json::array();
  for (const double value : values) list.push_back(std::stod(fmt::format("{:.4g}", value)));
  return list;
}

Matrix corner(const Matrix& whole, std::int64_t rows, std::int64_t columns) {
  Matrix part(rows, columns);
  for (std::int64_t i = 0; i < rows; ++i) {
    for (std::int64_t j = 0; j < columns; ++j) part.at(i, j) = whole.at(i, j);
  }
  return part;
}

Json row(const Matrix& q, const Matrix& k, const Matrix& v, const Matrix& dout, double scale) {
  const Rows rows = measure({.q = q, .k = k, .scale = scale, .weights = true});
  std::vector<double> scores;
  for (std::int64_t j = 0; j < k.rows; ++j) scores.push_back(scale * dot(q.row(0), k.row(j)));
  const Gradient g = gradient({.q = q, .k = k, .scale = scale}, v, dout);
  return {{"scores", rounded(scores)},
          {"weights", rounded(rows.weights.values)},
          {"gradient", rounded(g.ds.values)},
          {"entropy", rows.entropy.front()},
          {"largest", rows.max_weight.front()}};
}

Json map(const Matrix& q, const Matrix& k, double scale) {
  const Rows rows = measure({.q = q, .k = k, .scale = scale, .weights = true});
  return {{"weights", rounded(rows.weights.values)}, {"largest", rounded(rows.max_weight)}};
}

}  // namespace

Json recorded_rows(std::uint64_t seed) {
  Random random(seed, "report");
  const Matrix q = normal_matrix(random, kRows, kSizes.back()), k = normal_matrix(random, kKeys.back(), kSizes.back());
  const Matrix v = normal_matrix(random, kKeys.back(), kValueSize), dout = normal_matrix(random, 1, kValueSize);
  Json rows = Json::object(), maps = Json::object();
  for (const std::int64_t d : kSizes) {
    const double root = 1 / std::sqrt(static_cast<double>(d));
    for (const std::int64_t n : kKeys) {
      const Matrix some_q = corner(q, 1, d), some_k = corner(k, n, d), some_v = corner(v, n, kValueSize);
      rows[fmt::format("{}/{}", d, n)] = {{"unscaled", row(some_q, some_k, some_v, dout, 1)},
                                          {"scaled", row(some_q, some_k, some_v, dout, root)}};
    }
    const Matrix some_q = corner(q, kRows, d), some_k = corner(k, kRows, d);
    maps[fmt::format("{}", d)] = {{"unscaled", map(some_q, some_k, 1)}, {"scaled", map(some_q, some_k, root)}};
  }
  return {{"sizes", kSizes}, {"keys", kKeys}, {"rows", std::move(rows)}, {"maps", std::move(maps)}};
}

}  // namespace keel::lab
