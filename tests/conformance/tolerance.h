#pragma once

#include "keel/dtype.h"

// Every tolerance of Keel's tests, in one place.
namespace keel::conformance {

struct Tolerance {
  double eps;        // unit roundoff of the type that sums are kept in
  double storage;    // unit roundoff of the type that results are stored in
  double forward;    // ‖error‖ ≤ forward·‖reference‖ for out and weights
  double backward;   // the same for gradients
  double statistic;  // |error| ≤ statistic·(1 + |reference|) for row and head statistics
};

// f64 and f32: by norm. The 16-bit dtypes: by the error of the straightforward 16-bit computation, see compare.cc;
// `forward` and `backward` then apply to what is stored in f32 (lse, statistics, weights asked for in f32).
//
// Statistics: a score of size s is rounded by a few eps·s; lse, max_logit and the mean inherit that error, the entropy
// that error times |ln p + H|, the variance that error times 2σ. With scores up to about 10 a few eps·10 is 2e-6 in
// f32; 1e-5 leaves room for the order of summation.
constexpr Tolerance tolerance_of(DType dtype) {
  constexpr double eps64 = 0x1p-53, eps32 = 0x1p-24;
  switch (dtype) {
    case DType::f64:
      return {eps64, eps64, 1e-12, 1e-12, 1e-12};
    case DType::f16:
      return {eps32, 0x1p-11, 2e-6, 1e-5, 1e-5};
    case DType::bf16:
      return {eps32, 0x1p-8, 2e-6, 1e-5, 1e-5};
    default:
      return {eps32, eps32, 2e-6, 1e-5, 1e-5};
  }
}

// Where scores are large (±1e4), rounding them to f32 changes the weights by more than the figures above: an error is
// then also accepted up to kRounding·eps·‖amplified‖ (magnitude.h), but never beyond kCap·‖plain‖.
inline constexpr double kRounding = 4.0;
inline constexpr double kCap = 1e-2;

// 16-bit: max|error| ≤ 2·max|error of the straightforward computation| + 2·storage·max|reference| (one unit in the
// last place of the largest result, for the rounding of the result itself) + kAbsolute16.
inline constexpr double kNaiveFactor = 2.0;
inline constexpr double kAbsolute16 = 1e-6;

// merge(): an element of out may be off by one rounding of each part's term, kMergeRoundings of all of them and the one
// of storing. In float64 a weight exp(x) has an error of |x| < kMergeExponent64 roundings; where results are f32 it has
// none that counts. |error| ≤ kMergeStatistic·eps·(1 + |reference|) for statistics.
inline constexpr double kMergeRoundings = 6.0;
inline constexpr double kMergeExponent64 = 750.0;
inline constexpr double kMergeStatistic = 64.0;

}  // namespace keel::conformance
