#include "nn/reduce.h"

#include <vector>

#include "keel/nn/ops.h"
#include "nn/check.h"
#include "nn/loops.h"
#include "nn/tape.h"

namespace keel::nn {
namespace {

// x summed over the dimensions where `to`, of x's rank, has size 1. Sums are kept in double, in x's order.
Tensor reduced(const Tensor& x, const Shape& to) {
  Tensor y = empty(to, x.dtype());
  std::vector<double> sums(static_cast<std::size_t>(y.elements()));
  const Walk<2> walk(x.shape(), {x.strides(), broadcast_strides(y, x.shape())});
  const std::int64_t sx = walk.step(0), sy = walk.step(1);
  dispatch(x.dtype(), [&]<class T>(T) {
    if (x.elements() > 0) {
      walk.rows(0, walk.rows(), [&](const auto& at) {
        const T* const from = data_of<T>(x) + at[0];
        double* const into = sums.data() + at[1];
        const std::int64_t n = walk.width();
        if (sy == 0) {
          double part[4] = {};  // four chains, so that one addition need not wait for the last
          std::int64_t i = 0;
          for (; i + 4 <= n; i += 4) {
            for (int c = 0; c < 4; ++c) part[c] += static_cast<double>(from[(i + c) * sx]);
          }
          for (; i < n; ++i) part[0] += static_cast<double>(from[i * sx]);
          into[0] += (part[0] + part[1]) + (part[2] + part[3]);
        } else if (sx == 1 && sy == 1) {
          for (std::int64_t i = 0; i < n; ++i) into[i] += static_cast<double>(from[i]);
        } else {
          for (std::int64_t i = 0; i < n; ++i) into[i * sy] += static_cast<double>(from[i * sx]);
        }
      });
    }
    for (std::size_t i = 0; i < sums.size(); ++i) data_of<T>(y)[i] = static_cast<T>(sums[i]);
  });
  return y;
}

// x read as if it had `shape`: no copy, repetition by stride 0.
Tensor expanded(const Tensor& x, const Shape& shape) { return view_of(x, shape, broadcast_strides(x, shape), 0); }

// Sum over the dimensions where `kept`, of x's rank, has size 1; the result has `shape`.
Tensor sum_over(const char* operation, const Tensor& x, const Shape& kept, const Shape& shape) {
  const Tensor y = reshape(reduced(x.detach(), kept), shape);
  return record(operation, y, {x}, [kept, full = x.shape()](const Tensor& dy) -> std::vector<Tensor> {
    return {expanded(reshape(dy, kept), full)};
  });
}

Shape without(Shape shape, std::size_t dim, bool keep) {
  if (keep)
    shape[dim] = 1;
  else
    shape.erase(shape.begin() + static_cast<std::ptrdiff_t>(dim));
  return shape;
}

Tensor sum_dim(const char* operation, const Tensor& x, int dim, bool keep) {
  check_floating(operation, "x", x);
  const std::size_t d = check_dim(operation, x, dim);
  return sum_over(operation, x, without(x.shape(), d, true), without(x.shape(), d, keep));
}

}  // namespace

Shape broadcast_strides(const Tensor& x, const Shape& shape) {
  Shape strides(shape.size());
  const std::size_t missing = shape.size() - x.shape().size();
  for (std::size_t d = missing; d < shape.size(); ++d) {
    strides[d] = x.shape()[d - missing] == 1 && shape[d] != 1 ? 0 : x.strides()[d - missing];
  }
  return strides;
}

Tensor sum_to(const Tensor& x, const Shape& shape) {
  if (x.shape() == shape) return x;
  Shape padded(x.shape().size() - shape.size(), 1);
  padded.insert(padded.end(), shape.begin(), shape.end());
  return reshape(reduced(x, padded), shape);
}

Tensor sum(const Tensor& x) {
  check_floating("sum", "x", x);
  return sum_over("sum", x, Shape(x.shape().size(), 1), {});
}
Tensor sum(const Tensor& x, int dim, bool keep) { return sum_dim("sum", x, dim, keep); }

Tensor mean(const Tensor& x) {
  check_floating("mean", "x", x);
  if (x.elements() == 0) refuse("mean", "x: expected at least one element, got shape ", shape_text(x.shape()));
  return mul(sum(x), 1.0 / static_cast<double>(x.elements()));
}
Tensor mean(const Tensor& x, int dim, bool keep) {
  const Tensor total = sum_dim("mean", x, dim, keep);
  if (x.size(dim) == 0) refuse("mean", "x: expected at least one element along dim, got shape ", shape_text(x.shape()));
  return mul(total, 1.0 / static_cast<double>(x.size(dim)));
}

Tensor max(const Tensor& x, int dim, bool keep) {
  check_floating("max", "x", x);
  const std::size_t d = check_dim("max", x, dim);
  if (x.shape()[d] == 0) refuse("max", "x: expected at least one element along dim, got shape ", shape_text(x.shape()));
  // Finds where each maximum is; the rest is a gather.
  const Tensor last = dense(transpose(x.detach(), dim, -1));
  Shape kept = last.shape();
  const std::int64_t n = kept.back();
  kept.back() = 1;
  const Tensor places = empty(kept, DType::i64);
  dispatch(x.dtype(), [&]<class T>(T) {
    const T* row = data_of<T>(last);
    for (std::int64_t& place : places.data<std::int64_t>()) {
      place = 0;
      for (std::int64_t i = 1; i < n; ++i) {
        if (row[i] > row[place] || (row[i] != row[i] && row[place] == row[place])) place = i;
      }
      row += n;
    }
  });
  const Tensor y = gather(x, dim, transpose(places, dim, -1));
  return keep ? y : reshape(y, without(x.shape(), d, false));
}

}  // namespace keel::nn
