#include <algorithm>
#include <array>
#include <cmath>

#include "lab/breaks/breaks.h"
#include "lab/measure.h"

namespace keel::lab {
namespace {

constexpr std::int64_t kTokens = 8, kSize = 64;
constexpr std::size_t kSeeds = 256;

Matrix healthy_weights(const Matrix& q, const Matrix& k) {
  return measure({.q = q, .k = k, .weights = true, .causal = Causal::top_left}).weights;
}

// Each column normalised over the queries that see its key.
Matrix broken_weights(const Matrix& q, const Matrix& k) {
  Matrix p(kTokens, kTokens);
  for (std::int64_t j = 0; j < kTokens; ++j) {
    std::vector<double> scores;
    for (std::int64_t i = j; i < kTokens; ++i) scores.push_back(dot(q.row(i), k.row(j)) / std::sqrt(double{kSize}));
    const std::vector<double> column = softmax(scores);
    for (std::int64_t i = j; i < kTokens; ++i) p.at(i, j) = column[static_cast<std::size_t>(i - j)];
  }
  return p;
}

double row_sum(const Matrix& p, std::int64_t i) {
  double sum = 0;
  for (const double x : p.row(i)) sum += x;
  return sum;
}

double outside(const Matrix& p) {
  return static_cast<double>(std::ranges::count_if(p.values, [](double x) { return !(x >= 0 && x <= 1); }));
}

}  // namespace

Break softmax_over_queries() {
  return {
      .name = "softmax-over-queries",
      .scene = "Eight tokens attend to each other under a causal mask.",
      .summary = "The softmax runs along another dimension; eight tokens under a causal mask.",
      .suspect = "the softmax runs along the wrong dimension",
      .before = "weights = softmax(scores, dim=-1)",
      .after = "weights = softmax(scores, dim=-2)",
      .questions = {{"sum-first", "the sum of the first token's weights"},
                    {"sum-last", "the sum of the last token's weights"},
                    {"outside", "weights that are not between 0 and 1"},
                    {"future", "the change of the first token's weights when the last token changes"}},
      .run =
          [](Work& work, Version version) {
            const auto weights = version == Version::healthy ? healthy_weights : broken_weights;
            const auto inputs = [&](std::size_t r) {
              Random random(work.settings().seed, "break/queries", r);
              Matrix q = normal_matrix(random, kTokens, kSize), k = normal_matrix(random, kTokens, kSize), other = q;
              random.normal(std::span(other.values).last(static_cast<std::size_t>(kSize)));
              return std::array{std::move(q), std::move(k), std::move(other)};
            };
            Seen seen = over_seeds(work.repeats(kSeeds, kSeeds), [&](std::size_t r) {
              const auto [q, k, other] = inputs(r);
              const Matrix p = weights(q, k);
              return std::vector{row_sum(p, 0), row_sum(p, kTokens - 1), outside(p),
                                 std::abs(p.at(0, 0) - weights(other, k).at(0, 0))};
            });
            const auto [q, k, other] = inputs(0);
            seen.figures.push_back(weights_figure(weights(q, k)));
            return seen;
          },
      .hints = {"Add up the weights along each row, then along each column.",
                "Key 7 is seen by query 7 alone. What weight does it get?",
                "The denominator of a weight is a sum over all queries that see the key. Which of them come later?"},
      .cause =
          "Now each key shares itself out among the queries instead of each query among the keys. Every weight is "
          "still between 0 and 1, so nothing fails; but rows no longer add up to 1 (early tokens fade, late ones "
          "swell), and the denominator contains the scores of later queries: the future leaks through the mask.",
      .fix = "Normalise over the keys, the last dimension of (…, n_q, n_k), and test that rows add up to 1.",
  };
}

}  // namespace keel::lab
