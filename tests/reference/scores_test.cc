#include <cmath>

#include "reference/call.h"

// scores by their definition, stage by stage.
namespace keel::semantics {
namespace {

class Scores : public Semantics {
 protected:
  static Dense scores(const Inputs& x, const Options& options, ScoreStage stage) {
    Dense s({x.q.shape[0], x.q.shape[1], x.q.shape[2], x.k.shape[2]});
    s.values.assign(s.values.size(), 7.0);
    Dense out({x.q.shape[0], x.q.shape[1], x.q.shape[2], x.v.shape[3]});
    GetParam().forward(view(x.q), view(x.k), view(x.v), out.tensor(), options,
                       {.scores = s.tensor(), .score_stage = stage});
    return s;
  }
  // rule(b, h, i, j, q·k/√d_k) for every pair.
  template <class Rule>
  static Dense expected(const Inputs& x, Rule rule) {
    Dense s({x.q.shape[0], x.q.shape[1], x.q.shape[2], x.k.shape[2]});
    const std::int64_t group = x.q.shape[1] / x.k.shape[1], d = x.q.shape[3];
    for (std::int64_t b = 0; b < s.shape[0]; ++b) {
      for (std::int64_t h = 0; h < s.shape[1]; ++h) {
        for (std::int64_t i = 0; i < s.shape[2]; ++i) {
          for (std::int64_t j = 0; j < s.shape[3]; ++j) {
            double dot = 0.0;
            for (std::int64_t c = 0; c < d; ++c) dot += x.q.at(b, h, i, c) * x.k.at(b, h / group, j, c);
            s.at(b, h, i, j) = rule(b, h, i, j, dot / std::sqrt(static_cast<double>(d)));
          }
        }
      }
    }
    return s;
  }
};

TEST_P(Scores, FollowTheirStages) {
  const Inputs x = random_inputs(2, 4, 2, 9, 21, 4, 3);
  const Dense bias = random_dense({2, 4, 9, 21}, 5);
  const Mask mask({1, 1, 9, 21}, [](auto, auto, auto i, auto j) { return (i + j) % 3 != 0; });
  const Options options = {
      .softcap = 1.5, .mask = mask.view(), .bias = view(bias), .causal = Causal::bottom_right, .window = {.left = 6}};
  const auto capped = [](double s) { return 1.5 * std::tanh(s / 1.5); };
  expect_near(scores(x, options, ScoreStage::raw), expected(x, [](auto, auto, auto, auto, double s) { return s; }));
  expect_near(scores(x, options, ScoreStage::capped),
              expected(x, [&](auto, auto, auto, auto, double s) { return capped(s); }));
  expect_near(scores(x, options, ScoreStage::masked), expected(x, [&](auto b, auto h, auto i, auto j, double s) {
                const bool seen = j <= i + 12 && j >= i + 6 && (i + j) % 3 != 0;
                return seen ? capped(s) + bias.at(b, h, i, j) : -INFINITY;
              }));
}

TEST_P(Scores, OfWhatDoesNotBelongTogetherAreMinusInfinity) {
  const Inputs x = random_inputs(2, 2, 1, 9, 12, 4, 3);
  const std::vector<std::int64_t> rows = {9, 4}, keys = {12, 7}, starts = {2, 0};
  const Options padded = {.q_lengths = rows, .k_lengths = keys, .k_starts = starts};
  const Inputs y = random_inputs(1, 2, 1, 9, 12, 4, 3);
  const std::vector<std::int64_t> q_offsets = {0, 4, 9}, k_offsets = {0, 5, 12};
  const Options packed = {.q_offsets = q_offsets, .k_offsets = k_offsets};
  for (const ScoreStage stage : {ScoreStage::raw, ScoreStage::capped, ScoreStage::masked}) {
    expect_near(scores(x, padded, stage), expected(x, [&](auto b, auto, auto i, auto j, double s) {
                  return i < rows[b] && j >= starts[b] && j < keys[b] ? s : -INFINITY;
                }));
    expect_near(scores(y, packed, stage),
                expected(y, [](auto, auto, auto i, auto j, double s) { return (i < 4) == (j < 5) ? s : -INFINITY; }));
  }
}

INSTANTIATE_TEST_SUITE_P(Both, Scores, kBoth, name_of_run);

}  // namespace
}  // namespace keel::semantics
