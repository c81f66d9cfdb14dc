#include "lab/precision.h"

#include <algorithm>
#include <cmath>

#include "keel/attention.h"

namespace keel::lab {
namespace {

template <class T>
std::vector<double> softmax_in(std::span<const double> scores, T (*narrow)(double), double (*widen)(T)) {
  const auto n = static_cast<std::int64_t>(scores.size());
  const std::vector<T> q{narrow(1.0)}, v(scores.size(), narrow(0.0));
  std::vector<T> k, out(1), weights(scores.size());
  for (const double s : scores) k.push_back(narrow(s));
  Options options;
  options.scale = 1.0;
  options.threads = 1;
  Outputs outputs;
  outputs.weights = view(weights.data(), {1, 1, 1, n});
  attention(view(q.data(), {1, 1, 1, 1}), view(k.data(), {1, 1, n, 1}), view(v.data(), {1, 1, n, 1}),
            view(out.data(), {1, 1, 1, 1}), options, outputs);
  std::vector<double> p;
  for (const T& x : weights) p.push_back(widen(x));
  return p;
}

}  // namespace

double rounded(double x, DType dtype) {
  switch (dtype) {
    case DType::f32:
      return static_cast<float>(x);
    case DType::f16:
      return to_float(to_float16(x));
    case DType::bf16:
      return to_float(to_bfloat16(x));
    default:
      return x;
  }
}

std::vector<double> textbook_softmax(std::span<const double> scores, DType dtype, bool shifted) {
  const double top = shifted ? rounded(*std::max_element(scores.begin(), scores.end()), dtype) : 0.0;
  std::vector<double> p;
  double sum = 0;
  for (const double s : scores) {
    p.push_back(rounded(std::exp(rounded(rounded(s, dtype) - top, dtype)), dtype));
    sum = rounded(sum + p.back(), dtype);
  }
  for (double& x : p) x = rounded(x / sum, dtype);
  return p;
}

std::vector<double> keel_softmax(std::span<const double> scores, DType dtype) {
  switch (dtype) {
    case DType::f32:
      return softmax_in<float>(
          scores, [](double x) { return static_cast<float>(x); }, [](float x) { return double{x}; });
    case DType::f16:
      return softmax_in<Float16>(scores, to_float16, [](Float16 x) { return double{to_float(x)}; });
    case DType::bf16:
      return softmax_in<BFloat16>(scores, to_bfloat16, [](BFloat16 x) { return double{to_float(x)}; });
    default:
      return softmax_in<double>(
          scores, [](double x) { return x; }, [](double x) { return x; });
  }
}

}  // namespace keel::lab
