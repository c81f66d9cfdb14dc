#include <algorithm>
#include <cmath>

#include "lab/breaks/breaks.h"
#include "lab/measure.h"

namespace keel::lab {
namespace {

constexpr std::int64_t kTokens = 16, kNew = 4, kSize = 64;
constexpr std::size_t kSeeds = 8;

// Rows from `begin` on.
Matrix tail(const Matrix& m, std::int64_t begin) {
  return {m.rows - begin, m.columns, {m.values.begin() + begin * m.columns, m.values.end()}};
}

Matrix weights(const Matrix& q, const Matrix& k, Causal causal) {
  return measure({.q = q, .k = k, .weights = true, .causal = causal}).weights;
}

double largest_difference(const Matrix& a, const Matrix& b) {
  double most = 0;
  for (std::size_t i = 0; i < a.values.size(); ++i) most = std::max(most, std::abs(a.values[i] - b.values[i]));
  return most;
}

double keys_seen(const Matrix& p, std::int64_t row) {
  return static_cast<double>(std::ranges::count_if(p.row(row), [](double x) { return x > 0; }));
}

}  // namespace

Break causal_off_by_alignment() {
  return {
      .name = "causal-off-by-alignment",
      .scene = "The last four of sixteen tokens attend to all sixteen, whose keys are in a cache, under a causal mask.",
      .summary = "The last four of sixteen tokens attend to the keys in a cache, under a causal mask.",
      .suspect = "the causal mask starts in the wrong corner",
      .before = "mask = ones(n_q, n_k).tril(diagonal=n_k - n_q)",
      .after = "mask = ones(n_q, n_k).tril()",
      .questions = {{"seen-last", "the keys that the last token sees"},
                    {"seen-first", "the keys that the first of the four sees"},
                    {"difference", "the largest difference from the weights of one pass over all sixteen"},
                    {"difference-square", "the same when all sixteen are queries, as in training"}},
      .run =
          [](Work& work, Version version) {
            const Causal causal = version == Version::healthy ? Causal::bottom_right : Causal::top_left;
            const auto inputs = [&](std::size_t r) {
              Random random(work.settings().seed, "break/causal", r);
              Matrix q = normal_matrix(random, kTokens, kSize);
              return std::pair{std::move(q), normal_matrix(random, kTokens, kSize)};
            };
            Seen seen = over_seeds(work.repeats(kSeeds, kSeeds), [&](std::size_t r) {
              const auto [q, k] = inputs(r);
              const Matrix whole = weights(q, k, Causal::bottom_right);
              const Matrix p = weights(tail(q, kTokens - kNew), k, causal);
              return std::vector{keys_seen(p, kNew - 1), keys_seen(p, 0),
                                 largest_difference(p, tail(whole, kTokens - kNew)),
                                 largest_difference(weights(q, k, causal), whole)};
            });
            const auto [q, k] = inputs(0);
            seen.figures.push_back(weights_figure(weights(tail(q, kTokens - kNew), k, causal)));
            return seen;
          },
      .hints = {"The mask has four rows and sixteen columns. Draw it as it should be.",
                "Which token of the sequence is query 0 of the four?",
                "tril() starts its diagonal in the top left corner, where query 0 and key 0 meet."},
      .cause =
          "With a cache the queries are the last tokens of the sequence, so query i is at position n_k − n_q + i. A "
          "mask that starts in the top left takes it to be at position i and hides every key after that, the newest "
          "included. With as many queries as keys both masks are the same, so training and its tests never show it.",
      .fix =
          "Align the mask to the bottom right: Causal::bottom_right in keel::attention; top_left is for sequences that "
          "start together.",
  };
}

}  // namespace keel::lab
