#include "nn/scores/additive.h"

#include <vector>

#include "keel/nn/init.h"
#include "keel/nn/ops.h"
#include "keel/nn/scores.h"
#include "nn/check.h"
#include "nn/loops.h"
#include "nn/simd/kernels.h"
#include "nn/tape.h"

namespace keel::nn {

// Each pair's tanh(q + k) lives in registers only and is recomputed on the way back, so memory is N_q × N_k.
Tensor additive_scores(const Tensor& q_input, const Tensor& k_input, const Tensor& v_input) {
  const Tensor q = dense(q_input).detach(), k = dense(k_input).detach(), v = dense(v_input).detach();
  const std::int64_t matrices = q.size(0) * q.size(1), n_q = q.size(2), n_k = k.size(2), d = q.size(3);
  const Tensor s = empty({q.size(0), q.size(1), n_q, n_k}, q.dtype());
  dispatch(q.dtype(), [&]<class T>(T) {
    for_blocks(matrices * n_q, rows_per_block(n_k * d), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row) {
        const T* const keys = data_of<T>(k) + row / n_q * n_k * d;
        for (std::int64_t j = 0; j < n_k; ++j) {
          data_of<T>(s)[row * n_k + j] = additive(data_of<T>(q) + row * d, keys + j * d, data_of<T>(v), d);
        }
      }
    });
  });
  return record("additive", s, {q_input, k_input, v_input}, [=](const Tensor& gradient) -> std::vector<Tensor> {
    const Tensor ds = dense(gradient);
    const Tensor dq = Tensor::zeros(q.shape(), q.dtype()), dk = Tensor::zeros(k.shape(), k.dtype());
    const Tensor dv = empty(v.shape(), v.dtype());
    dispatch(q.dtype(), [&]<class T>(T) {
      std::vector<T> partial(static_cast<std::size_t>(matrices * d));  // dv of each matrix
      for_blocks(matrices, 1, [&](std::int64_t matrix, std::int64_t) {
        for (std::int64_t i = 0; i < n_q; ++i) {
          const std::int64_t row = matrix * n_q + i;
          for (std::int64_t j = 0; j < n_k; ++j) {
            const std::int64_t key = matrix * n_k + j;
            const T g = data_of<T>(ds)[row * n_k + j];
            if (g == T(0)) continue;  // masked: its value must not leak
            additive_backward<T>(data_of<T>(q) + row * d, data_of<T>(k) + key * d, data_of<T>(v), g,
                                 {data_of<T>(dq) + row * d, data_of<T>(dk) + key * d, partial.data() + matrix * d}, d);
          }
        }
      });
      for (std::int64_t a = 0; a < d; ++a) {
        double total = 0;
        for (std::int64_t m = 0; m < matrices; ++m)
          total += static_cast<double>(partial[static_cast<std::size_t>(m * d + a)]);
        data_of<T>(dv)[a] = static_cast<T>(total);
      }
    });
    return {dq, dk, dv};
  });
}

Scored scores_alone(const Tensor& bias) {
  const Shape& s = bias.shape();
  const Tensor zero = Tensor::zeros({1}, bias.dtype());
  const auto repeated = [&](std::int64_t n) { return view_of(zero, {s[0], s[1], n, 1}, {0, 0, 0, 0}, 0); };
  return {.q = repeated(s[2]), .k = repeated(s[3]), .scale = 1.0, .bias = bias};
}

void check_heads(const char* operation, const char* name, const Tensor& x, std::int64_t d) {
  check_given(operation, name, x);
  if (x.rank() != 4 || x.size(3) != d) {
    refuse(operation, name, ": expected shape (B, H, N, ", d, "), got ", shape_text(x.shape()));
  }
}

AdditiveScore::AdditiveScore(std::int64_t d_q, std::int64_t d_k, std::int64_t d_a, Random& random) {
  W_s = parameter("W_s", initial({d_a, d_q}, Init::xavier_uniform, random));
  W_h = parameter("W_h", initial({d_a, d_k}, Init::xavier_uniform, random));
  v = parameter("v", initial({d_a}, Init::xavier_uniform, random, Fans{d_a, 1}));
}

Tensor AdditiveScore::prepared(const Tensor& k) const {
  check_heads("additive", "k", k, W_h.size(1));
  return linear(k, W_h);
}

Scored AdditiveScore::score(const Tensor& q, const Tensor& prepared_k) const {
  check_heads("additive", "q", q, W_s.size(1));
  check_heads("additive", "prepared k", prepared_k, v.size(0));
  return scores_alone(additive_scores(linear(q, W_s), prepared_k, v));
}

}  // namespace keel::nn
