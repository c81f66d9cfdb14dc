#include "lab/measure.h"

#include <array>
#include <cmath>
#include <numeric>

#include "nn/gemm.h"

namespace keel::lab {
namespace {

Options options_of(const Measure& what) {
  Options options;
  options.scale = what.scale;
  options.causal = what.causal;
  if (what.bias != nullptr) options.bias = what.bias->input(what.sequences);
  options.threads = 1;  // a sweep has the threads
  return options;
}

// By BLAS, on this thread.
Matrix product(nn::Gemm<double> g, const Matrix& a, const Matrix& b) {
  Matrix c(g.m, b.columns);
  g.n = g.ldb = g.ldc = b.columns;
  g.lda = a.columns;
  const nn::OneThreadInBlas alone;
  const nn::OneThreadOfOpenMp alone_here;
  nn::gemm_part(g, {a.values.data(), b.values.data(), c.values.data()}, /*by_rows=*/true, 0, g.m);
  return c;
}

}  // namespace

TensorView Matrix::input(std::int64_t sequences, std::optional<std::int64_t> first) const {
  TensorView all = view(values.data(), {sequences, 1, rows / sequences, columns});
  all.shape[3] = first.value_or(columns);
  return all;
}

MutableTensorView Matrix::output(std::int64_t sequences) {
  return view(values.data(), {sequences, 1, rows / sequences, columns});
}

Matrix normal_matrix(Random& random, std::int64_t rows, std::int64_t columns, double sd) {
  Matrix matrix(rows, columns);
  random.normal(matrix.values, sd);
  return matrix;
}

Matrix multiply(const Matrix& a, const Matrix& b) { return product({.m = a.rows, .k = a.columns}, a, b); }

Matrix multiply_transposed(const Matrix& a, const Matrix& b) {
  return product({.m = a.columns, .k = a.rows, .transpose_a = true}, a, b);
}

double dot(std::span<const double> a, std::span<const double> b) {
  // Several sums at a time: a single one would wait for each addition before the next.
  std::array<double, 8> sums{};
  std::size_t i = 0;
  for (; i + sums.size() <= a.size(); i += sums.size()) {
    for (std::size_t s = 0; s < sums.size(); ++s) sums[s] += a[i + s] * b[i + s];
  }
  double sum = std::accumulate(sums.begin(), sums.end(), 0.0);
  for (; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

double norm(std::span<const double> values) { return std::sqrt(dot(values, values)); }

Rows measure(const Measure& what) {
  const std::int64_t b = what.sequences, rows = what.q.rows;
  const Matrix v(what.k.rows, 1);  // the output is not used
  Matrix out(rows, 1);
  Rows found;
  const auto reported = [&](std::vector<double>& values) {
    values.resize(static_cast<std::size_t>(rows));
    return row_view(values.data(), {b, 1, rows / b});
  };
  Outputs outputs;
  outputs.lse = reported(found.lse);
  outputs.max_logit = reported(found.max_logit);
  outputs.entropy = reported(found.entropy);
  outputs.max_weight = reported(found.max_weight);
  outputs.logit_mean = reported(found.logit_mean);
  outputs.logit_var = reported(found.logit_var);
  if (what.weights) {
    found.weights = Matrix(rows, what.k.rows / b);
    outputs.weights = found.weights.output(b);
  }
  attention(what.q.input(b, what.d_k), what.k.input(b, what.d_k), v.input(b), out.output(b), options_of(what), outputs);
  return found;
}

Gradient gradient(const Measure& what, const Matrix& v, const Matrix& dout) {
  const std::int64_t b = what.sequences, rows = what.q.rows;
  const Matrix no_bias(1, 1);
  Options options = options_of(what);
  if (!options.bias.given()) options.bias = no_bias.input();  // its gradient is that with respect to the scores
  Matrix out(rows, v.columns);
  std::vector<double> lse(static_cast<std::size_t>(rows));
  Outputs outputs;
  outputs.lse = row_view(lse.data(), {b, 1, rows / b});
  attention(what.q.input(b), what.k.input(b), v.input(b), out.output(b), options, outputs);

  Gradient found{.ds = Matrix(rows, what.k.rows / b),
                 .dq = Matrix(rows, what.q.columns),
                 .dk = Matrix(what.k.rows, what.k.columns),
                 .dv = Matrix(v.rows, v.columns)};
  const BackwardInputs inputs{.q = what.q.input(b),
                              .k = what.k.input(b),
                              .v = v.input(b),
                              .out = out.input(b),
                              .lse = outputs.lse,
                              .dout = dout.input(b),
                              .dlse = {}};
  Gradients gradients;
  gradients.dq = found.dq.output(b);
  gradients.dk = found.dk.output(b);
  gradients.dv = found.dv.output(b);
  gradients.dbias = found.ds.output(b);
  attention_backward(inputs, gradients, options);
  return found;
}

std::vector<double> softmax(std::span<const double> scores) {
  const Matrix q(1, 1, {1.0}), k(static_cast<std::int64_t>(scores.size()), 1, {scores.begin(), scores.end()});
  return measure({.q = q, .k = k, .scale = 1.0, .weights = true}).weights.values;
}

Matrix softmax_jacobian(std::span<const double> scores) {
  // n queries see the same scores and the values are the unit vectors, so every output is p. The i-th unit vector as
  // the gradient of query i's output yields the derivatives of weight i alone.
  const auto n = static_cast<std::int64_t>(scores.size());
  const Matrix q(n, 1, std::vector<double>(scores.size(), 1.0)), k(n, 1, {scores.begin(), scores.end()});
  Matrix unit(n, n);
  for (std::int64_t i = 0; i < n; ++i) unit.at(i, i) = 1.0;
  return gradient({.q = q, .k = k, .scale = 1.0}, unit, unit).ds;
}

double jacobian_norm(std::span<const double> weights) {
  double squares = 0, cubes = 0;
  for (const double p : weights) {
    squares += p * p;
    cubes += p * p * p;
  }
  return std::sqrt(std::max(0.0, squares - 2 * cubes + squares * squares));
}

}  // namespace keel::lab
