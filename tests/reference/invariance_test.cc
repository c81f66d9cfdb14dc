#include <algorithm>
#include <cmath>
#include <numeric>

#include "conformance/blocks.h"
#include "reference/call.h"

// Two ways to say the same thing give the same result.
namespace keel::semantics {
namespace {

class Invariance : public Semantics {};

// Rows [begin, end) along N.
Dense slice(const Dense& x, std::int64_t begin, std::int64_t end) {
  Dense y({x.shape[0], x.shape[1], end - begin, x.shape[3]});
  for (std::int64_t b = 0; b < y.shape[0]; ++b) {
    for (std::int64_t h = 0; h < y.shape[1]; ++h) {
      for (std::int64_t n = 0; n < y.shape[2]; ++n) {
        for (std::int64_t d = 0; d < y.shape[3]; ++d) y.at(b, h, n, d) = x.at(b, h, begin + n, d);
      }
    }
  }
  return y;
}

TEST_P(Invariance, OrderOfKeysDoesNotMatter) {
  const Inputs x = random_inputs(1, 2, 2, 5, 9, 4, 3);
  const std::vector<std::int64_t> order = {3, 8, 0, 1, 7, 5, 2, 6, 4};
  Inputs y = x;
  for (std::int64_t h = 0; h < 2; ++h) {
    for (std::int64_t j = 0; j < 9; ++j) {
      for (std::int64_t d = 0; d < 4; ++d) y.k.at(0, h, j, d) = x.k.at(0, h, order[static_cast<std::size_t>(j)], d);
      for (std::int64_t d = 0; d < 3; ++d) y.v.at(0, h, j, d) = x.v.at(0, h, order[static_cast<std::size_t>(j)], d);
    }
  }
  const Results a = attend(x), b = attend(y);
  expect_near(b.out, a.out);
  expect_near(b.lse, a.lse);
  expect_near(b.entropy, a.entropy);
  for (std::int64_t j = 0; j < 9; ++j) {
    EXPECT_NEAR(b.weights.at(0, 1, 2, j), a.weights.at(0, 1, 2, order[static_cast<std::size_t>(j)]), 1e-12);
  }
}

TEST_P(Invariance, ShiftOfBiasMovesOnlyLse) {
  const Inputs x = random_inputs(2, 2, 1, 5, 7, 4, 3);
  Dense bias = random_dense({2, 2, 5, 7}, 5);
  const Results a = attend(x, {.bias = view(bias)});
  for (double& value : bias.values) value += 37.0;
  const Results b = attend(x, {.bias = view(bias)});
  expect_near(b.out, a.out, 1e-11);
  expect_near(b.entropy, a.entropy, 1e-11);
  for (std::size_t i = 0; i < a.lse.values.size(); ++i) EXPECT_NEAR(b.lse.values[i], a.lse.values[i] + 37.0, 1e-11);
}

TEST_P(Invariance, HalvesOfTheKeysMergeIntoTheWhole) {
  const Inputs x = random_inputs(2, 4, 2, 6, 15, 4, 3);
  const std::vector<double> sink_values = {0.3, -1.0, 2.0, 0.0};
  for (const bool with_sinks : {false, true}) {
    Options plain, sinking;
    if (with_sinks) sinking.sinks = heads(sink_values);
    const Results whole = attend(x, sinking);
    const Results left = attend({x.q, slice(x.k, 0, 6), slice(x.v, 0, 6)}, sinking);
    const Results right = attend({x.q, slice(x.k, 6, 15), slice(x.v, 6, 15)}, plain);
    Dense out(whole.out.shape), lse(whole.lse.shape);
    const Partial parts[] = {{.out = view(left.out), .lse = rows(left.lse)},
                             {.out = view(right.out), .lse = rows(right.lse)}};
    merge(parts, out.tensor(), {.lse = lse.rows()});
    expect_near(out, whole.out);
    expect_near(lse, whole.lse);
  }
}

TEST_P(Invariance, ASinkMergesAsASeparatePart) {
  const Inputs x = random_inputs(1, 2, 2, 4, 5, 3, 2);
  const std::vector<double> sink_values = {0.3, -1.0};
  const Results plain = attend(x), whole = attend(x, {.sinks = heads(sink_values)});
  const Dense zeros(whole.out.shape);
  Dense sink_lse(whole.lse.shape), out(whole.out.shape), lse(whole.lse.shape);
  for (std::int64_t h = 0; h < 2; ++h) {
    for (std::int64_t i = 0; i < 4; ++i) sink_lse.at(0, h, i) = sink_values[static_cast<std::size_t>(h)];
  }
  const Partial parts[] = {{.out = view(plain.out), .lse = rows(plain.lse)},
                           {.out = view(zeros), .lse = rows(sink_lse)}};
  merge(parts, out.tensor(), {.lse = lse.rows()});
  expect_near(out, whole.out);
  expect_near(lse, whole.lse);
}

TEST_P(Invariance, ZeroSinkIsSoftmaxOne) {
  const Inputs x = random_inputs(1, 1, 1, 3, 5, 4, 2);
  const std::vector<double> zero = {0.0};
  const Results r = attend(x, {.sinks = heads(zero)});
  for (std::int64_t i = 0; i < 3; ++i) {
    double sum = 1.0;  // exp(0)
    std::vector<double> e(5);
    for (std::int64_t j = 0; j < 5; ++j) {
      double dot = 0.0;
      for (std::int64_t d = 0; d < 4; ++d) dot += x.q.at(0, 0, i, d) * x.k.at(0, 0, j, d);
      sum += e[static_cast<std::size_t>(j)] = std::exp(dot / 2.0);
    }
    for (std::int64_t j = 0; j < 5; ++j) {
      EXPECT_NEAR(r.weights.at(0, 0, i, j), e[static_cast<std::size_t>(j)] / sum, 1e-12);
    }
    EXPECT_NEAR(r.lse.at(0, 0, i), std::log(sum), 1e-12);
  }
}

TEST_P(Invariance, ZeroSinkIsAnAppendedZeroKeyWithZeroValue) {
  const Inputs x = random_inputs(2, 2, 2, 4, 6, 3, 3);
  Inputs y{x.q, Dense({2, 2, 7, 3}), Dense({2, 2, 7, 3})};
  for (std::int64_t b = 0; b < 2; ++b) {
    for (std::int64_t h = 0; h < 2; ++h) {
      for (std::int64_t j = 0; j < 6; ++j) {
        for (std::int64_t d = 0; d < 3; ++d) {
          y.k.at(b, h, j, d) = x.k.at(b, h, j, d);
          y.v.at(b, h, j, d) = x.v.at(b, h, j, d);
        }
      }
    }
  }
  const std::vector<double> zeros = {0.0, 0.0};
  const Results a = attend(x, {.sinks = heads(zeros)}), b = attend(y);
  expect_near(a.out, b.out);
  expect_near(a.lse, b.lse);
  expect_near(a.entropy, b.entropy);
}

TEST_P(Invariance, CausalIsABooleanMask) {
  for (const auto& [n_q, n_k] : {std::pair<std::int64_t, std::int64_t>{5, 9}, {7, 7}, {9, 5}}) {
    const Inputs x = random_inputs(1, 2, 1, n_q, n_k, 4, 3);
    const std::array<std::int64_t, 4> shape = {1, 1, n_q, n_k};
    const Mask top_left(shape, [](auto, auto, std::int64_t i, std::int64_t j) { return j <= i; });
    expect_same(attend(x, {.causal = Causal::top_left}), attend(x, {.mask = top_left.view()}));
    const Mask bottom_right(
        shape, [&, m = n_q, n = n_k](auto, auto, std::int64_t i, std::int64_t j) { return j <= i + n - m; });
    expect_same(attend(x, {.causal = Causal::bottom_right}), attend(x, {.mask = bottom_right.view()}));
  }
}

TEST_P(Invariance, WindowIsABooleanMask) {
  constexpr std::int64_t kAll = Window::kUnbounded;
  for (const auto& [n_q, n_k] : {std::pair<std::int64_t, std::int64_t>{5, 9}, {7, 7}, {9, 5}}) {
    const Inputs x = random_inputs(1, 2, 1, n_q, n_k, 4, 3);
    for (const Causal causal : {Causal::none, Causal::top_left, Causal::bottom_right}) {
      for (const Window window : {Window{2, kAll}, Window{kAll, 1}, Window{2, 1}, Window{0, 0}, Window{100, 100}}) {
        const std::int64_t offset = causal == Causal::top_left ? 0 : n_k - n_q;
        const Mask mask({1, 1, n_q, n_k}, [&](auto, auto, std::int64_t i, std::int64_t j) {
          const std::int64_t distance = j - (i + offset);
          if (causal != Causal::none && distance > 0) return false;
          return (window.left == kAll || -distance <= window.left) &&
                 (window.right == kAll || distance <= window.right);
        });
        expect_same(attend(x, {.causal = causal, .window = window}), attend(x, {.mask = mask.view()}));
      }
    }
  }
}

TEST_P(Invariance, LengthsAreABooleanMask) {
  const Inputs x = random_inputs(4, 2, 1, 6, 8, 4, 3);
  const std::vector<std::int64_t> q_lengths = {6, 3, 0, 5}, k_lengths = {8, 0, 4, 2};
  const auto at = [](const std::vector<std::int64_t>& list, std::int64_t b) {
    return list[static_cast<std::size_t>(b)];
  };
  const Mask keys({4, 1, 1, 8}, [&](std::int64_t b, auto, auto, std::int64_t j) { return j < at(k_lengths, b); });
  expect_same(attend(x, {.k_lengths = k_lengths}), attend(x, {.mask = keys.view()}));
  const Mask queries({4, 1, 6, 1}, [&](std::int64_t b, auto, std::int64_t i, auto) { return i < at(q_lengths, b); });
  expect_same(attend(x, {.q_lengths = q_lengths}), attend(x, {.mask = queries.view()}));
  // bottom_right stands on the lengths, not on the padded sizes
  const Mask both({4, 1, 6, 8}, [&](std::int64_t b, auto, std::int64_t i, std::int64_t j) {
    const std::int64_t lq = at(q_lengths, b), lk = at(k_lengths, b);
    return i < lq && j < lk && j <= i + lk - lq;
  });
  expect_same(attend(x, {.causal = Causal::bottom_right, .q_lengths = q_lengths, .k_lengths = k_lengths}),
              attend(x, {.mask = both.view()}));
}

TEST_P(Invariance, APackedBatchIsItsEntriesApart) {
  const std::vector<std::int64_t> q_offsets = {0, 4, 4, 9, 11}, k_offsets = {0, 3, 8, 8, 15};
  const Inputs x = random_inputs(1, 2, 1, 11, 15, 4, 3);
  const std::vector<double> slopes = {0.5, 0.25}, sink_values = {0.1, -0.2};
  for (const Causal causal : {Causal::none, Causal::top_left, Causal::bottom_right}) {
    Options options{.causal = causal, .window = {.left = 3}, .alibi = heads(slopes), .sinks = heads(sink_values)};
    Options packed = options;
    packed.q_offsets = q_offsets;
    packed.k_offsets = k_offsets;
    const Results all = attend(x, packed);
    for (std::size_t e = 0; e + 1 < q_offsets.size(); ++e) {
      const Results one =
          attend({slice(x.q, q_offsets[e], q_offsets[e + 1]), slice(x.k, k_offsets[e], k_offsets[e + 1]),
                  slice(x.v, k_offsets[e], k_offsets[e + 1])},
                 options);
      expect_near(slice(all.out, q_offsets[e], q_offsets[e + 1]), one.out);
      expect_near(slice(all.lse, q_offsets[e], q_offsets[e + 1]), one.lse);
      expect_near(slice(all.entropy, q_offsets[e], q_offsets[e + 1]), one.entropy);
      for (std::int64_t i = q_offsets[e]; i < q_offsets[e + 1]; ++i) {
        for (std::int64_t j = 0; j < 15; ++j) {
          const bool own = j >= k_offsets[e] && j < k_offsets[e + 1];
          const double want = own ? one.weights.at(0, 1, i - q_offsets[e], j - k_offsets[e]) : 0.0;
          EXPECT_NEAR(all.weights.at(0, 1, i, j), want, 1e-12);
        }
      }
    }
  }
}

TEST_P(Invariance, APackedBatchIsAPaddedOneDropoutIncluded) {
  const std::vector<std::int64_t> q_offsets = {0, 4, 6, 9}, k_offsets = {0, 3, 8, 12}, q_lengths = {4, 2, 3},
                                  k_lengths = {3, 5, 4};
  const Inputs packed = random_inputs(1, 2, 1, 9, 12, 4, 3);
  Inputs padded{Dense({3, 2, 4, 4}), Dense({3, 1, 5, 4}), Dense({3, 1, 5, 3})};
  const auto spread = [](const Dense& from, Dense& to, const std::vector<std::int64_t>& offsets) {
    for (std::int64_t e = 0; e < 3; ++e) {
      const auto begin = offsets[static_cast<std::size_t>(e)], end = offsets[static_cast<std::size_t>(e) + 1];
      for (std::int64_t h = 0; h < from.shape[1]; ++h) {
        for (std::int64_t n = begin; n < end; ++n) {
          for (std::int64_t d = 0; d < from.shape[3]; ++d) to.at(e, h, n - begin, d) = from.at(0, h, n, d);
        }
      }
    }
  };
  spread(packed.q, padded.q, q_offsets);
  spread(packed.k, padded.k, k_offsets);
  spread(packed.v, padded.v, k_offsets);
  const Results a = attend(packed, {.q_offsets = q_offsets, .k_offsets = k_offsets, .dropout = 0.4, .seed = 3});
  const Results b = attend(padded, {.q_lengths = q_lengths, .k_lengths = k_lengths, .dropout = 0.4, .seed = 3});
  Dense a_out(b.out.shape);
  spread(a.out, a_out, q_offsets);
  expect_near(a_out, b.out);
}

TEST_P(Invariance, GroupedHeadsAreRepeatedHeads) {
  const Inputs x = random_inputs(2, 6, 2, 5, 7, 4, 3);
  Inputs y{x.q, Dense({2, 6, 7, 4}), Dense({2, 6, 7, 3})};
  for (std::int64_t b = 0; b < 2; ++b) {
    for (std::int64_t h = 0; h < 6; ++h) {
      for (std::int64_t j = 0; j < 7; ++j) {
        for (std::int64_t d = 0; d < 4; ++d) y.k.at(b, h, j, d) = x.k.at(b, h * 2 / 6, j, d);
        for (std::int64_t d = 0; d < 3; ++d) y.v.at(b, h, j, d) = x.v.at(b, h * 2 / 6, j, d);
      }
    }
  }
  expect_same(attend(x, {.dropout = 0.3}), attend(y, {.dropout = 0.3}));
}

TEST_P(Invariance, AlibiIsABias) {
  const std::vector<double> slopes = {0.5, 0.125};
  for (const auto& [n_q, n_k] : {std::pair<std::int64_t, std::int64_t>{5, 9}, {9, 5}}) {
    const Inputs x = random_inputs(1, 2, 2, n_q, n_k, 4, 3);
    for (const Causal causal : {Causal::none, Causal::top_left, Causal::bottom_right}) {
      const std::int64_t offset = causal == Causal::top_left ? 0 : n_k - n_q;
      Dense bias({1, 2, n_q, n_k});
      for (std::int64_t h = 0; h < 2; ++h) {
        for (std::int64_t i = 0; i < n_q; ++i) {
          for (std::int64_t j = 0; j < n_k; ++j) {
            bias.at(0, h, i, j) = -slopes[static_cast<std::size_t>(h)] * std::fabs(static_cast<double>(i + offset - j));
          }
        }
      }
      expect_same(attend(x, {.causal = causal, .alibi = heads(slopes)}),
                  attend(x, {.bias = view(bias), .causal = causal}));
    }
  }
}

TEST_P(Invariance, AlibiPerEntryIsThatOfEachEntry) {
  const Dense slopes = random_dense({3, 2, 1, 1}, 12);
  const Inputs x = random_inputs(3, 2, 2, 5, 9, 4, 3);
  Dense bias({3, 2, 5, 9});
  for (std::int64_t b = 0; b < 3; ++b) {
    for (std::int64_t h = 0; h < 2; ++h) {
      for (std::int64_t i = 0; i < 5; ++i) {
        for (std::int64_t j = 0; j < 9; ++j) {
          bias.at(b, h, i, j) = -slopes.at(b, h) * std::fabs(static_cast<double>(i + 4 - j));
        }
      }
    }
  }
  expect_same(attend(x, {.alibi = table_view(slopes.values.data(), {3, 2})}), attend(x, {.bias = view(bias)}));
}

TEST_P(Invariance, RelativeBiasIsABias) {
  const Dense table = random_dense({2, 7, 1, 1}, 11);  // distances from −3 to 3
  for (const auto& [n_q, n_k] : {std::pair<std::int64_t, std::int64_t>{5, 9}, {9, 5}}) {
    const Inputs x = random_inputs(1, 2, 2, n_q, n_k, 4, 3);
    for (const Causal causal : {Causal::none, Causal::top_left, Causal::bottom_right}) {
      const std::int64_t offset = causal == Causal::top_left ? 0 : n_k - n_q;
      Dense bias({1, 2, n_q, n_k});
      for (std::int64_t h = 0; h < 2; ++h) {
        for (std::int64_t i = 0; i < n_q; ++i) {
          for (std::int64_t j = 0; j < n_k; ++j) {
            bias.at(0, h, i, j) = table.at(h, std::clamp<std::int64_t>(j - i - offset, -3, 3) + 3);
          }
        }
      }
      expect_same(attend(x, {.causal = causal, .relative_bias = table_view(table.values.data(), {2, 7})}),
                  attend(x, {.bias = view(bias), .causal = causal}));
    }
  }
}

TEST_P(Invariance, StartsAreABooleanMask) {
  const Inputs x = random_inputs(3, 2, 1, 4, 9, 4, 3);
  const std::vector<std::int64_t> starts = {0, 3, 9}, lengths = {9, 7, 9};
  const Mask mask({3, 1, 1, 9},
                  [&](std::int64_t b, auto, auto, std::int64_t j) { return j >= starts[static_cast<std::size_t>(b)]; });
  for (const Causal causal : {Causal::none, Causal::bottom_right}) {
    expect_same(attend(x, {.causal = causal, .k_lengths = lengths, .k_starts = starts}),
                attend(x, {.mask = mask.view(), .causal = causal, .k_lengths = lengths}));
  }
}

TEST_P(Invariance, ABlockMaskIsABooleanMask) {
  const Inputs x = random_inputs(2, 2, 1, 11, 14, 4, 3);
  const auto rule = [](std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) {
    return (i / 4 + j / 5 + h) % 3 == 0 || ((i / 4 + j / 5) % 3 == 1 && (i + 2 * j + b) % 3 != 0);
  };
  const Mask mask({2, 2, 11, 14}, rule);
  const conformance::Blocks blocks({{2, 2, 11, 14}, 4, 5, false}, rule, conformance::Placement::aligned);
  for (const Causal causal : {Causal::none, Causal::bottom_right}) {
    expect_same(attend(x, {.block_mask = blocks.mask(), .causal = causal}),
                attend(x, {.mask = mask.view(), .causal = causal}));
  }
}

TEST_P(Invariance, ScaleIsOneOverTheRootOfTheHeadSize) {
  const Inputs x = random_inputs(1, 2, 2, 5, 7, 5, 3);
  expect_same(attend(x), attend(x, {.scale = 1.0 / std::sqrt(5.0)}));
}

TEST_P(Invariance, ScalePerHeadAndPerQueryScaleTheQueries) {
  const Inputs x = random_inputs(2, 2, 2, 5, 7, 4, 3);
  for (const std::array<std::int64_t, 4>& shape :
       {std::array<std::int64_t, 4>{1, 2, 1, 1}, {2, 2, 5, 1}, {2, 1, 1, 1}, {1, 1, 5, 1}, {1, 1, 1, 1}}) {
    const Dense scale = random_dense(shape, 77);
    Inputs y = x;
    for (std::int64_t b = 0; b < 2; ++b) {
      for (std::int64_t h = 0; h < 2; ++h) {
        for (std::int64_t i = 0; i < 5; ++i) {
          const double factor = scale.at(b % shape[0], h % shape[1], i % shape[2]);
          for (std::int64_t d = 0; d < 4; ++d) y.q.at(b, h, i, d) *= factor;
        }
      }
    }
    expect_same(attend(x, {.scale_tensor = rows(scale)}), attend(y, {.scale = 1.0}));
  }
}

TEST_P(Invariance, SoftcapComesBeforeTheBias) {
  const Inputs x = random_inputs(1, 1, 1, 4, 6, 3, 2);
  const Dense bias = random_dense({1, 1, 4, 6}, 9, 3.0);
  const Results r = attend(x, {.softcap = 0.7, .bias = view(bias)});
  Dense scores({1, 1, 4, 6});
  for (std::int64_t i = 0; i < 4; ++i) {
    for (std::int64_t j = 0; j < 6; ++j) {
      double dot = 0.0;
      for (std::int64_t d = 0; d < 3; ++d) dot += x.q.at(0, 0, i, d) * x.k.at(0, 0, j, d);
      scores.at(0, 0, i, j) = 0.7 * std::tanh(dot / std::sqrt(3.0) / 0.7) + bias.at(0, 0, i, j);
    }
  }
  expect_near(r.out, attend(x, {.scale = 0.0, .bias = view(scores)}).out);
}

TEST_P(Invariance, SoftcapBoundsTheScores) {
  const Inputs x = random_inputs(1, 1, 1, 9, 30, 8, 2);
  const Results r = attend(x, {.scale = 100.0, .softcap = 1.5});
  for (const double logit : r.max_logit.values) EXPECT_LE(logit, 1.5);
}

TEST_P(Invariance, MasksCompose) {
  const Inputs x = random_inputs(2, 2, 1, 6, 9, 4, 3);
  const Mask some({2, 1, 6, 9}, [](auto b, auto, auto i, auto j) { return (b + 2 * i + j) % 4 != 0; });
  Dense bias = random_dense({1, 2, 6, 9}, 4);
  for (std::size_t at = 0; at < bias.values.size(); at += 5) bias.values[at] = -INFINITY;
  const std::vector<std::int64_t> k_lengths = {9, 6};
  const Mask all({2, 2, 6, 9}, [&](std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) {
    return (b + 2 * i + j) % 4 != 0 && bias.at(0, h, i, j) != -INFINITY && j < k_lengths[static_cast<std::size_t>(b)] &&
           j <= i && i - j <= 3;
  });
  Dense finite = bias;
  for (double& value : finite.values) value = std::isinf(value) ? 0.0 : value;
  expect_same(attend(x, {.mask = some.view(),
                         .bias = view(bias),
                         .causal = Causal::top_left,
                         .window = {.left = 3},
                         .k_lengths = k_lengths}),
              attend(x, {.mask = all.view(), .bias = view(finite)}));
}

INSTANTIATE_TEST_SUITE_P(Both, Invariance, kBoth, name_of_run);

}  // namespace
}  // namespace keel::semantics
