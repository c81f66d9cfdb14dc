#pragma once

#include <span>
#include <vector>

#include "keel/dtype.h"

namespace keel::lab {

// The nearest number representable in the dtype.
double rounded(double x, DType dtype);

// The textbook softmax, exp(s) / Σ exp(s), in the arithmetic of a dtype: the result of every operation
// is rounded to it. With `shifted`, the largest score is subtracted first.
std::vector<double> textbook_softmax(std::span<const double> scores, DType dtype, bool shifted);

// The same row by keel::attention, with q, k and v of that dtype.
std::vector<double> keel_softmax(std::span<const double> scores, DType dtype);

}  // namespace keel::lab
