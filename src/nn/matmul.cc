#include <climits>

#include "keel/nn/ops.h"
#include "nn/check.h"
#include "nn/gemm.h"
#include "nn/loops.h"
#include "nn/reduce.h"
#include "nn/tape.h"

namespace keel::nn {
namespace {

// The last two dimensions of a tensor as BLAS sees them.
struct Matrix {
  Tensor x;  // the tensor, or a dense copy if its strides do not suit
  bool transposed = false;
  std::int64_t ld = 1;
};

Matrix matrix_of(const Tensor& tensor) {
  const auto fits = [](std::int64_t along, std::int64_t size, std::int64_t step, std::int64_t across) {
    return (along == 1 || size == 1) && step >= std::max<std::int64_t>(size, 1) && step <= INT_MAX && across > 1;
  };
  const std::int64_t rows = tensor.size(-2), columns = tensor.size(-1);
  const std::int64_t down = tensor.strides()[tensor.shape().size() - 2], right = tensor.strides().back();
  if (rows > 1 && fits(right, columns, down, rows)) return {tensor, false, down};
  if (columns > 1 && fits(down, rows, right, columns)) return {tensor, true, right};
  return {dense(tensor), false, std::max<std::int64_t>(columns, 1)};
}

Shape batch_of(const Tensor& x) { return {x.shape().begin(), x.shape().end() - 2}; }

Shape batch_strides(const Tensor& x, const Shape& batch) {
  const Shape own = batch_of(x);
  Shape strides(batch.size());
  for (std::size_t d = batch.size() - own.size(), i = 0; d < batch.size(); ++d, ++i) {
    strides[d] = own[i] == 1 && batch[d] != 1 ? 0 : x.strides()[i];
  }
  return strides;
}

// The product, off the tape.
Tensor product(const Tensor& a, const Tensor& b) {
  const auto mismatch = [&](const char* what) {
    refuse("matmul", "a and b: expected ", what, ", got ", shape_text(a.shape()), " and ", shape_text(b.shape()));
  };
  const std::int64_t m = a.size(-2), k = a.size(-1), n = b.size(-1);
  if (b.size(-2) != k) mismatch("(…, m, k) and (…, k, n)");
  check_gemm("matmul", m, n, k);
  const Shape ba = batch_of(a), bb = batch_of(b);
  Shape batch(std::max(ba.size(), bb.size()), 1);
  for (std::size_t i = 1; i <= batch.size(); ++i) {
    const std::int64_t sa = i <= ba.size() ? ba[ba.size() - i] : 1, sb = i <= bb.size() ? bb[bb.size() - i] : 1;
    if (sa != sb && sa != 1 && sb != 1) mismatch("dimensions before the last two that broadcast");
    batch[batch.size() - i] = sa == 1 ? sb : sa;
  }
  Shape shape = batch;
  shape.insert(shape.end(), {m, n});
  Tensor y = empty(shape, a.dtype());
  const Matrix ma = matrix_of(a), mb = matrix_of(b);
  // Where each matrix of the batch begins.
  std::vector<std::array<std::int64_t, 2>> starts;
  std::int64_t count = 1;
  for (const std::int64_t size : batch) count *= size;
  starts.reserve(static_cast<std::size_t>(count));
  const Shape sa = batch_strides(ma.x, batch), sb = batch_strides(mb.x, batch);
  for (std::int64_t i = 0; i < count; ++i) {
    std::array<std::int64_t, 2> at{};
    std::int64_t left = i;
    for (std::size_t d = batch.size(); d-- > 0; left /= batch[d]) {
      at[0] += left % batch[d] * sa[d];
      at[1] += left % batch[d] * sb[d];
    }
    starts.push_back(at);
  }
  dispatch(a.dtype(), [&]<class T>(T) {
    const Gemm<T> g{.m = m,
                    .n = n,
                    .k = k,
                    .transpose_a = ma.transposed,
                    .transpose_b = mb.transposed,
                    .lda = ma.ld,
                    .ldb = mb.ld,
                    .ldc = std::max<std::int64_t>(n, 1)};
    gemm(g, count, [&](std::int64_t i) {
      const auto& at = starts[static_cast<std::size_t>(i)];
      return GemmMatrices<T>{data_of<T>(ma.x) + at[0], data_of<T>(mb.x) + at[1], data_of<T>(y) + i * m * n};
    });
  });
  return y;
}

// The gradient of a weight (out, in): dyᵀ·x of dy (rows, out) and x (rows, in). A weight that is used more than once,
// as at each step of a recurrence, gets it added to what it has: then the result is not given.
Tensor weight_gradient(const Tensor& dy, const Tensor& x, const Tensor& sum) {
  if (!sum.given() || !is_own(sum)) return product(transpose(dy, 0, 1), x);
  dispatch(x.dtype(), [&]<class T>(T) {
    const Gemm<T> g{.m = dy.size(1),
                    .n = x.size(1),
                    .k = x.size(0),
                    .transpose_a = true,
                    .lda = std::max<std::int64_t>(dy.size(1), 1),
                    .ldb = std::max<std::int64_t>(x.size(1), 1),
                    .ldc = std::max<std::int64_t>(x.size(1), 1),
                    .add = true};
    gemm(g, 1, [&](std::int64_t) { return GemmMatrices<T>{data_of<T>(dy), data_of<T>(x), data_of<T>(sum)}; });
  });
  return {};
}

// Sums of the columns of x (rows, n), in blocks of rows and then over the blocks.
template <class T>
void column_sums(const T* x, std::int64_t rows, std::int64_t n, T* y) {
  constexpr std::int64_t kRows = 256;
  const std::int64_t blocks = (rows + kRows - 1) / kRows;
  std::vector<T> partial(static_cast<std::size_t>(blocks * n));
  for_blocks(rows, kRows, [&](std::int64_t begin, std::int64_t end) {
    T* const into = partial.data() + begin / kRows * n;
    for (std::int64_t r = begin; r < end; ++r) {
      for (std::int64_t i = 0; i < n; ++i) into[i] += x[r * n + i];
    }
  });
  for (std::int64_t i = 0; i < n; ++i) {
    double total = 0;
    for (std::int64_t b = 0; b < blocks; ++b)
      total += static_cast<double>(partial[static_cast<std::size_t>(b * n + i)]);
    y[i] = static_cast<T>(total);
  }
}

}  // namespace

Tensor matmul(const Tensor& a, const Tensor& b) {
  check_floating("matmul", "a", a);
  check_same_dtype("matmul", "b", b, "a", a);
  if (a.rank() < 2 || b.rank() < 2) {
    refuse("matmul", "a and b: expected at least two dimensions each, got ", shape_text(a.shape()), " and ",
           shape_text(b.shape()));
  }
  return record("matmul", product(a, b), {a, b}, [a, b](const Tensor& dy) -> std::vector<Tensor> {
    return {a.requires_grad() ? sum_to(product(dy, transpose(b.detach(), -2, -1)), a.shape()) : Tensor(),
            b.requires_grad() ? sum_to(product(transpose(a.detach(), -2, -1), dy), b.shape()) : Tensor()};
  });
}

Tensor linear(const Tensor& input, const Tensor& weight, const Tensor& bias) {
  check_floating("linear", "x", input);
  check_same_dtype("linear", "weight", weight, "x", input);
  if (input.rank() < 1 || weight.rank() != 2 || weight.size(1) != input.size(-1)) {
    refuse("linear", "x and weight: expected (…, in) and (out, in), got ", shape_text(input.shape()), " and ",
           shape_text(weight.shape()));
  }
  const std::int64_t in = weight.size(1), out = weight.size(0);
  if (bias.given()) {
    check_same_dtype("linear", "bias", bias, "x", input);
    check_shape("linear", "bias", bias, {out});
  }
  const Tensor x = dense(input).detach(), w = dense(weight).detach();
  std::int64_t rows = 1;
  for (std::size_t d = 0; d + 1 < x.shape().size(); ++d) rows *= x.shape()[d];
  check_gemm("linear", rows, out, in);
  Shape shape = x.shape();
  shape.back() = out;
  const Tensor y = empty(shape, x.dtype());
  dispatch(x.dtype(), [&]<class T>(T) {
    const Tensor b = bias.given() ? dense(bias) : Tensor();
    gemm(Gemm<T>{.m = rows,
                 .n = out,
                 .k = in,
                 .transpose_b = true,
                 .lda = std::max<std::int64_t>(in, 1),
                 .ldb = std::max<std::int64_t>(in, 1),
                 .ldc = std::max<std::int64_t>(out, 1),
                 .row = bias.given() ? data_of<T>(b) : nullptr},
         1, [&](std::int64_t) {
           return GemmMatrices<T>{data_of<T>(x), data_of<T>(w), data_of<T>(y)};
         });
  });
  const bool needs_x = input.requires_grad(), needs_w = weight.requires_grad(), needs_b = bias.requires_grad();
  const std::shared_ptr<Node> weight_node = weight.impl()->node;
  return record("linear", y, {input, weight, bias}, [=](const Tensor& gradient) -> std::vector<Tensor> {
    const Tensor dy = reshape(dense(gradient), {rows, out});
    Tensor dx, dw, db;
    if (needs_x) dx = reshape(product(dy, w), x.shape());
    if (needs_w) dw = weight_gradient(dy, reshape(x, {rows, in}), weight_node->grad);
    if (needs_b) {
      db = empty({out}, dy.dtype());
      dispatch(dy.dtype(), [&]<class T>(T) { column_sums(data_of<T>(dy), rows, out, data_of<T>(db)); });
    }
    return {dx, dw, db};
  });
}

}  // namespace keel::nn
