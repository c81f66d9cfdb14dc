#include <cmath>

#include "keel/attention.h"
#include "lab/breaks/breaks.h"
#include "lab/precision.h"
#include "lab/random.h"

namespace keel::lab {
namespace {

constexpr std::int64_t kTokens = 8, kPadding = 3, kSize = 64;
constexpr std::size_t kSeeds = 8;

// Causal attention over a sequence whose first tokens are padding: the queries of the padding see no key at all.
bool visible(std::int64_t i, std::int64_t j) { return j >= kPadding && j <= i; }

struct Inputs {
  std::vector<double> q, k;  // (kTokens, kSize), rounded to the dtype

  Inputs(Random random, DType dtype)
      : q(static_cast<std::size_t>(kTokens * kSize)), k(static_cast<std::size_t>(kTokens * kSize)) {
    random.normal(q);
    random.normal(k);
    for (auto* values : {&q, &k}) {
      for (double& x : *values) x = rounded(x, dtype);
    }
  }
  double score(std::int64_t i, std::int64_t j) const {
    double sum = 0;
    for (std::int64_t c = 0; c < kSize; ++c)
      sum += q[static_cast<std::size_t>(i * kSize + c)] * k[static_cast<std::size_t>(j * kSize + c)];
    return sum;
  }
};

using Weights = std::vector<double>;  // (kTokens, kTokens)

// With keel::attention in 16 bits, with a boolean mask.
template <class T>
Weights healthy(const Inputs& inputs, T (*narrow)(double)) {
  std::vector<T> q, k, weights(static_cast<std::size_t>(kTokens * kTokens)),
      out(static_cast<std::size_t>(kTokens * kSize));
  for (const double x : inputs.q) q.push_back(narrow(x));
  for (const double x : inputs.k) k.push_back(narrow(x));
  bool mask[kTokens * kTokens];
  for (std::int64_t i = 0; i < kTokens; ++i) {
    for (std::int64_t j = 0; j < kTokens; ++j) mask[i * kTokens + j] = visible(i, j);
  }
  Options options;
  options.mask = view(static_cast<const bool*>(mask), {1, 1, kTokens, kTokens});
  options.threads = 1;
  Outputs outputs;
  outputs.weights = view(weights.data(), {1, 1, kTokens, kTokens});
  const std::array<std::int64_t, 4> shape{1, 1, kTokens, kSize};
  attention(view(q.data(), shape), view(k.data(), shape), view(k.data(), shape), view(out.data(), shape), options,
            outputs);
  Weights p;
  for (const T& x : weights) p.push_back(to_float(x));
  return p;
}

// softmax((q·k + mask) / √d_k) with every step rounded to 16 bits.
Weights broken(const Inputs& inputs, DType dtype) {
  Weights p;
  for (std::int64_t i = 0; i < kTokens; ++i) {
    std::vector<double> row;
    for (std::int64_t j = 0; j < kTokens; ++j) {
      const double mask = visible(i, j) ? 0.0 : rounded(-1e9, dtype);
      const double s = rounded(rounded(inputs.score(i, j), dtype) + mask, dtype);
      row.push_back(rounded(s / std::sqrt(double{kSize}), dtype));
    }
    const auto weights = textbook_softmax(row, dtype, true);
    p.insert(p.end(), weights.begin(), weights.end());
  }
  return p;
}

double nan_rows(const Weights& p) {
  double count = 0;
  for (std::int64_t i = 0; i < kTokens; ++i) count += std::isnan(p[static_cast<std::size_t>(i * kTokens)]) ? 1 : 0;
  return count;
}

// The share of dV = Pᵀ·dO that is NaN, with dO all ones.
double nan_gradient(const Weights& p) {
  double count = 0;
  for (std::int64_t j = 0; j < kTokens; ++j) {
    double dv = 0;
    for (std::int64_t i = 0; i < kTokens; ++i) dv += p[static_cast<std::size_t>(i * kTokens + j)];
    count += std::isnan(dv) ? 1.0 / kTokens : 0.0;
  }
  return count;
}

// The largest weight on a masked key, in rows that see a key or in those that see none.
double leaked(const Weights& p, bool sees) {
  double most = 0;
  for (std::int64_t i = 0; i < kTokens; ++i) {
    if ((i >= kPadding) != sees) continue;
    for (std::int64_t j = 0; j < kTokens; ++j) {
      if (!visible(i, j)) most = std::max(most, p[static_cast<std::size_t>(i * kTokens + j)]);
    }
  }
  return most;
}

}  // namespace

Break mask_before_scale_in_f16() {
  return {
      .name = "mask-before-scale-in-f16",
      .scene = "Causal attention in 16 bits over eight tokens, of which the first three are padding.",
      .summary = "The mask is −1e9 added to the scores, in 16 bits; the sequence begins with three padding tokens.",
      .suspect = "the mask is a large number that is added to the scores",
      .before = "scores = (q @ k.T / sqrt(d_k)).masked_fill(mask == 0, -inf)   # rows without a key: 0",
      .after = "scores = (q @ k.T + where(mask == 0, -1e9, 0)) / sqrt(d_k)    # in float16",
      .questions = {{"nan-rows", "rows of weights that are not numbers, float16"},
                    {"nan-gradient", "the share of the gradient at V that is not a number, float16"},
                    {"leak-seeing", "the largest weight on a masked key, in rows that see a key, float16"},
                    {"leak-padding", "the largest weight on a masked key, in rows that see none, bfloat16"}},
      .run =
          [](Work& work, Version version) {
            const auto weights = [&](std::size_t r, DType dtype) {
              const Inputs inputs(Random(work.settings().seed, "break/mask", r), dtype);
              if (version == Version::broken) return broken(inputs, dtype);
              return dtype == DType::f16 ? healthy(inputs, to_float16) : healthy(inputs, to_bfloat16);
            };
            Seen seen = over_seeds(work.repeats(kSeeds, kSeeds), [&](std::size_t r) {
              const Weights p = weights(r, DType::f16), b = weights(r, DType::bf16);
              return std::vector{nan_rows(p), nan_gradient(p), leaked(p, true), leaked(b, false)};
            });
            seen.figures.push_back(weights_figure({kTokens, kTokens, weights(0, DType::bf16)}));
            seen.figures.back().title += ", bfloat16";
            return seen;
          },
      .hints =
          {"What is the largest number that float16 can hold?",
           "It is 65,504: −1e9 becomes −∞. What remains of a row of −∞ when its largest score is subtracted?",
           "bfloat16 holds −1e9, but with 8 bits of precision: 5 − 1e9 is −1e9. What is the softmax of equal scores?"},
      .cause =
          "In float16 −1e9 is −∞. Rows that see a key are fine; in a row that sees none, −∞ − (−∞) is not a number, "
          "and one such row turns the whole gradient at V into NaN. In bfloat16 (and float32) −1e9 is finite and "
          "swallows the scores, so a row that sees no key attends to all masked keys equally, padding and future "
          "alike.",
      .fix =
          "Use a boolean mask that the softmax itself applies (Options::mask), and let a row without a key be 0, as "
          "keel::attention does. Never add a large number instead.",
  };
}

}  // namespace keel::lab
