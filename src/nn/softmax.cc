#include <cmath>
#include <limits>

#include "keel/nn/ops.h"
#include "nn/check.h"
#include "nn/loops.h"
#include "nn/simd/kernels.h"
#include "nn/tape.h"

namespace keel::nn {
namespace {

// body(T*, row) over the rows of `n` elements of a dense tensor, in parallel.
template <class Body>
void for_rows(const Tensor& x, const Body& body) {
  const std::int64_t n = std::max<std::int64_t>(1, x.size(-1)), rows = x.elements() / n;
  for_blocks(rows, rows_per_block(n), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) body(row);
  });
}

// Softmax and its logarithm work on the last dimension; any other is moved there.
Tensor along_last(const char* operation, const Tensor& x, int dim, Tensor (*f)(const Tensor&)) {
  check_floating(operation, "x", x);
  const std::size_t d = check_dim(operation, x, dim);
  if (d + 1 == x.shape().size()) return f(x);
  return transpose(f(transpose(x, dim, -1)), dim, -1);
}

// p = exp(x − lse);   dx = p·(dy − Σ dy·p)
Tensor softmax_last(const Tensor& input) {
  const Tensor x = dense(input), p = empty(x.shape(), x.dtype());
  const std::int64_t n = x.size(-1);
  dispatch(x.dtype(), [&]<class T>(T) {
    for_rows(x, [&](std::int64_t row) {
      T* const to = data_of<T>(p) + row * n;
      const T l = exp_shifted(data_of<T>(x) + row * n, row_max(data_of<T>(x) + row * n, n), to, n);
      for (std::int64_t i = 0; i < n; ++i) to[i] /= l;
    });
  });
  return record("softmax", p, {input}, [n, p = p.detach()](const Tensor& gradient) -> std::vector<Tensor> {
    const Tensor dy = dense(gradient), dx = empty(dy.shape(), dy.dtype());
    dispatch(dy.dtype(), [&]<class T>(T) {
      for_rows(dy, [&](std::int64_t row) {
        const T *const pr = data_of<T>(p) + row * n, *const g = data_of<T>(dy) + row * n;
        T* const to = data_of<T>(dx) + row * n;
        const T mean = row_dot(pr, g, n);
        for (std::int64_t i = 0; i < n; ++i) to[i] = pr[i] * (g[i] - mean);
      });
    });
    return {dx};
  });
}

// y = x − lse;   dx = dy − exp(y)·Σ dy
Tensor log_softmax_last(const Tensor& input) {
  const Tensor x = dense(input), y = empty(x.shape(), x.dtype());
  const std::int64_t n = x.size(-1);
  dispatch(x.dtype(), [&]<class T>(T) {
    for_rows(x, [&](std::int64_t row) {
      const T* const from = data_of<T>(x) + row * n;
      T* const to = data_of<T>(y) + row * n;
      const T m = row_max(from, n), log_l = std::log(exp_shifted(from, m, to, n));
      for (std::int64_t i = 0; i < n; ++i) to[i] = (from[i] - m) - log_l;
    });
  });
  return record("log_softmax", y, {input}, [n, y = y.detach()](const Tensor& gradient) -> std::vector<Tensor> {
    const Tensor dy = dense(gradient), dx = empty(dy.shape(), dy.dtype());
    dispatch(dy.dtype(), [&]<class T>(T) {
      for_rows(dy, [&](std::int64_t row) {
        const T* const g = data_of<T>(dy) + row * n;
        T* const to = data_of<T>(dx) + row * n;
        const T total = row_sum(g, n);
        exp_shifted(data_of<T>(y) + row * n, T(0), to, n);
        for (std::int64_t i = 0; i < n; ++i) to[i] = g[i] - to[i] * total;
      });
    });
    return {dx};
  });
}

}  // namespace

Tensor softmax(const Tensor& x, int dim) { return along_last("softmax", x, dim, softmax_last); }
Tensor log_softmax(const Tensor& x, int dim) { return along_last("log_softmax", x, dim, log_softmax_last); }

// loss = mean of lse − (1 − ε)·logit[label] − ε·mean logit;   dlogits = (p − (1 − ε)·onehot − ε/C)·dloss/counted
Tensor cross_entropy(const Tensor& logits, const Tensor& labels, std::int64_t ignored, double smoothing) {
  check_floating("cross_entropy", "logits", logits);
  check_dtype("cross_entropy", "labels", labels, DType::i64);
  if (!(smoothing >= 0.0 && smoothing < 1.0)) {
    refuse("cross_entropy", "smoothing: expected from 0 to below 1, got ", smoothing);
  }
  if (logits.rank() < 1 || Shape(logits.shape().begin(), logits.shape().end() - 1) != labels.shape()) {
    refuse("cross_entropy", "logits and labels: expected (…, classes) and (…), got ", shape_text(logits.shape()),
           " and ", shape_text(labels.shape()));
  }
  const std::int64_t classes = logits.size(-1), rows = labels.elements();
  const Tensor x = dense(logits).detach(), label = dense(labels);
  std::int64_t counted = 0;
  for (const std::int64_t id : label.data<std::int64_t>()) {
    if (id == ignored) continue;
    if (id < 0 || id >= classes) {
      refuse("cross_entropy", "labels: expected values from 0 to ", classes - 1, " or ", ignored, ", got ", id);
    }
    ++counted;
  }
  const Tensor p = empty(x.shape(), x.dtype()), loss = empty({}, x.dtype());
  dispatch(x.dtype(), [&]<class T>(T) {
    std::vector<T> row_loss(static_cast<std::size_t>(rows));
    const std::int64_t* const id = label.data<std::int64_t>().data();
    if (classes > 0) {
      for_rows(x, [&](std::int64_t row) {
        if (id[row] == ignored) return;
        const T* const from = data_of<T>(x) + row * classes;
        T* const to = data_of<T>(p) + row * classes;
        const T m = row_max(from, classes), l = exp_shifted(from, m, to, classes);
        for (std::int64_t i = 0; i < classes; ++i) to[i] /= l;
        T& of_row = row_loss[static_cast<std::size_t>(row)];
        of_row = std::log(l) - (from[id[row]] - m);
        if (smoothing > 0.0) {
          const T even = row_sum(from, classes) / static_cast<T>(classes);
          of_row += static_cast<T>(smoothing) * (from[id[row]] - even);
        }
      });
    }
    double total = 0;
    for (const T value : row_loss) total += static_cast<double>(value);
    *data_of<T>(loss) = static_cast<T>(counted > 0 ? total / static_cast<double>(counted) : 0.0);
  });
  return record("cross_entropy", loss, {logits}, [=](const Tensor& dloss) -> std::vector<Tensor> {
    const Tensor dx = empty(p.shape(), p.dtype());
    dispatch(dx.dtype(), [&]<class T>(T) {
      const T share = counted > 0 ? static_cast<T>(dloss.item() / static_cast<double>(counted)) : T(0);
      const std::int64_t* const id = label.data<std::int64_t>().data();
      for_rows(dx, [&](std::int64_t row) {
        T* const to = data_of<T>(dx) + row * classes;
        if (id[row] == ignored) {
          std::fill(to, to + classes, T(0));
          return;
        }
        const T* const from = data_of<T>(p) + row * classes;
        const T each = static_cast<T>(smoothing / static_cast<double>(classes));
        for (std::int64_t i = 0; i < classes; ++i) to[i] = (from[i] - each) * share;
        to[id[row]] -= static_cast<T>(1.0 - smoothing) * share;
      });
    });
    return {dx};
  });
}

}  // namespace keel::nn
