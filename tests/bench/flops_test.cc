// The count of visible scores against asking every mask about every pair of a query and a key.
#include "bench/flops.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

namespace keel::bench {
namespace {

constexpr std::int64_t kBatch = 2, kHeads = 4, kKvHeads = 2, kQueries = 13, kKeys = 17, kSize = 8, kValueSize = 5;

struct Sequence {
  std::int64_t batch, q_begin, q_len, k_begin, k_len;
};

// The sequences of a call as the options describe them.
std::vector<Sequence> sequences(const Options& o) {
  std::vector<Sequence> all;
  for (std::int64_t e = 0; e + 1 < o.q_offsets.size(); ++e) {
    all.push_back(
        {0, o.q_offsets[e], o.q_offsets[e + 1] - o.q_offsets[e], o.k_offsets[e], o.k_offsets[e + 1] - o.k_offsets[e]});
  }
  if (!all.empty()) return all;
  for (std::size_t b = 0; b < kBatch; ++b) {
    all.push_back({static_cast<std::int64_t>(b), 0, o.q_lengths.empty() ? kQueries : o.q_lengths[b], 0,
                   o.k_lengths.empty() ? kKeys : o.k_lengths[b]});
  }
  return all;
}

bool sees(const Options& o, const Sequence& s, std::int64_t i, std::int64_t j) {
  const std::int64_t diagonal = i + (o.causal == Causal::top_left ? 0 : s.k_len - s.q_len);
  if (o.causal != Causal::none && j > diagonal) return false;
  if (o.window.left != Window::kUnbounded && j < diagonal - o.window.left) return false;
  return o.window.right == Window::kUnbounded || j <= diagonal + o.window.right;
}

std::int64_t count_all(const Options& o) {
  std::int64_t count = 0;
  for (const Sequence& s : sequences(o)) {
    for (std::int64_t h = 0; h < kHeads; ++h) {
      for (std::int64_t i = 0; i < s.q_len; ++i) {
        for (std::int64_t j = 0; j < s.k_len; ++j) {
          const auto at = [&](const TensorView& x) {
            return s.batch * x.strides[0] + h * x.strides[1] + (s.q_begin + i) * x.strides[2] +
                   (s.k_begin + j) * x.strides[3];
          };
          const bool masked = o.mask.given() && !static_cast<const bool*>(o.mask.data)[at(o.mask)];
          const bool sunk = o.bias.given() && std::isinf(static_cast<const float*>(o.bias.data)[at(o.bias)]);
          count += sees(o, s, i, j) && !masked && !sunk ? 1 : 0;
        }
      }
    }
  }
  return count;
}

Problem problem_of(const Options& options) {
  const std::int64_t batch = options.q_offsets.empty() ? kBatch : 1;
  const auto described = [&](std::int64_t heads, std::int64_t n, std::int64_t d) {
    const std::array<std::int64_t, 4> shape = {batch, heads, n, d};
    return MutableTensorView{nullptr, DType::f32, shape, contiguous_strides(shape)};
  };
  return make_problem(described(kHeads, kQueries, kSize), described(kKvHeads, kKeys, kSize),
                      described(kKvHeads, kKeys, kValueSize), described(kHeads, kQueries, kValueSize), options, {},
                      Pointers::ignored);
}

void expect_count(const Options& options) {
  const Problem problem = problem_of(options);
  const std::int64_t count = count_all(options);
  EXPECT_EQ(visible_scores(problem), count);
  EXPECT_EQ(forward_flops(problem), 2.0 * (kSize + kValueSize) * static_cast<double>(count));
}

const std::vector<Causal> kCausal = {Causal::none, Causal::top_left, Causal::bottom_right};
const std::vector<Window> kWindows = {{}, {3, 0}, {0, 0}, {2, 5}, {Window::kUnbounded, 2}, {40, 40}};

TEST(VisibleScores, WithoutMasksAreAllPairs) {
  EXPECT_EQ(visible_scores(problem_of({})), kBatch * kHeads * kQueries * kKeys);
}

TEST(VisibleScores, CausalOfASquareIsItsTriangle) {
  const std::array<std::int64_t, 4> shape = {1, 1, 64, 8};
  const MutableTensorView x{nullptr, DType::f32, shape, contiguous_strides(shape)};
  const Problem problem = make_problem(x, x, x, x, {.causal = Causal::top_left}, {}, Pointers::ignored);
  EXPECT_EQ(visible_scores(problem), 64 * 65 / 2);
}

TEST(VisibleScores, CausalMasksAndWindowsWithLengths) {
  const std::vector<std::int64_t> q_lengths = {13, 6}, k_lengths = {9, 17};
  for (const Causal causal : kCausal) {
    for (const Window& window : kWindows) {
      SCOPED_TRACE(testing::Message() << static_cast<int>(causal) << " " << window.left << " " << window.right);
      Options options{.causal = causal, .window = window};
      expect_count(options);
      options.k_lengths = k_lengths;
      expect_count(options);
      options.q_lengths = q_lengths;
      expect_count(options);
    }
  }
}

TEST(VisibleScores, PackedSequences) {
  const std::vector<std::int64_t> q_offsets = {0, 4, 4, 13}, k_offsets = {0, 7, 9, 17};
  for (const Causal causal : kCausal) {
    for (const Window& window : kWindows) {
      expect_count({.causal = causal, .window = window, .q_offsets = q_offsets, .k_offsets = k_offsets});
    }
  }
}

TEST(VisibleScores, DenseMasksAndBiases) {
  std::mt19937 random(1);
  std::vector<char> mask(kBatch * kHeads * kQueries * kKeys);
  for (char& x : mask) x = random() % 3 != 0 ? 1 : 0;
  std::vector<float> bias(kHeads * kQueries * kKeys);
  for (float& x : bias) x = random() % 3 != 0 ? 0.5f : -INFINITY;
  const std::array<std::int64_t, 4> shape = {kBatch, kHeads, kQueries, kKeys};
  Options options{.mask = {mask.data(), DType::boolean, shape, contiguous_strides(shape)}};
  expect_count(options);
  options.causal = Causal::bottom_right;
  expect_count(options);
  // The same for every batch entry.
  options.bias = {bias.data(), DType::f32, shape, {0, kQueries * kKeys, kKeys, 1}};
  expect_count(options);
  options.mask = {};
  expect_count(options);
}

}  // namespace
}  // namespace keel::bench
