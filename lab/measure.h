#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "keel/attention.h"
#include "lab/random.h"

// keel::attention as a measuring instrument: one head, float64.
namespace keel::lab {

// Row by row.
struct Matrix {
  std::int64_t rows = 0, columns = 0;
  std::vector<double> values;

  Matrix() = default;
  Matrix(std::int64_t rows_, std::int64_t columns_)
      : rows(rows_), columns(columns_), values(static_cast<std::size_t>(rows_ * columns_)) {}
  Matrix(std::int64_t rows_, std::int64_t columns_, std::vector<double> values_)
      : rows(rows_), columns(columns_), values(std::move(values_)) {}

  double& at(std::int64_t i, std::int64_t j) { return values[static_cast<std::size_t>(i * columns + j)]; }
  double at(std::int64_t i, std::int64_t j) const { return values[static_cast<std::size_t>(i * columns + j)]; }
  std::span<const double> row(std::int64_t i) const {
    return std::span(values).subspan(static_cast<std::size_t>(i * columns), static_cast<std::size_t>(columns));
  }

  // For the operator to read or write: (sequences, 1, rows / sequences, columns), or only the first columns of it.
  TensorView input(std::int64_t sequences = 1, std::optional<std::int64_t> first = {}) const;
  MutableTensorView output(std::int64_t sequences = 1);
};

Matrix normal_matrix(Random& random, std::int64_t rows, std::int64_t columns, double sd = 1.0);

Matrix multiply(const Matrix& a, const Matrix& b);             // a b
Matrix multiply_transposed(const Matrix& a, const Matrix& b);  // aᵀ b

double dot(std::span<const double> a, std::span<const double> b);

// √Σ x²
double norm(std::span<const double> values);

// What keel::attention reports about its rows.
struct Rows {
  std::vector<double> lse, max_logit, entropy, max_weight, logit_mean, logit_var;
  Matrix weights;  // only on request
};

// q (n_q, d_k) and k (n_k, d_k); or several sequences below each other, the queries of each seeing its own keys.
struct Measure {
  const Matrix& q;
  const Matrix& k;
  std::optional<double> scale = {};      // absent: 1/√d_k
  std::optional<std::int64_t> d_k = {};  // only the first d_k components of q and k
  std::int64_t sequences = 1;
  bool weights = false;
  Causal causal = Causal::none;
  const Matrix* bias = nullptr;  // (rows of q, keys of a sequence), as are weights
};
Rows measure(const Measure& what);

// Gradients of Σ out·dout with respect to the scores (after scaling), q, k and v.
struct Gradient {
  Matrix ds, dq, dk, dv;
};
Gradient gradient(const Measure& what, const Matrix& v, const Matrix& dout);

// The softmax of a row of scores, by keel::attention.
std::vector<double> softmax(std::span<const double> scores);

// Row i: the derivative of weight i with respect to each score, from keel::attention_backward: p_i(δ_ij − p_j).
Matrix softmax_jacobian(std::span<const double> scores);

// Its Frobenius norm, from the weights: √(Σp² − 2Σp³ + (Σp²)²).
double jacobian_norm(std::span<const double> weights);

}  // namespace keel::lab
