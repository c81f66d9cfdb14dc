#include <algorithm>
#include <cstring>
#include <optional>

#include "keel/nn/ops.h"
#include "nn/check.h"
#include "nn/loops.h"
#include "nn/tape.h"

namespace keel::nn {
namespace {

// The strides with which x's memory shows `shape`, if there are any: each contiguous run of x's dimensions may be split
// differently.
std::optional<Shape> strides_for(const Tensor& x, const Shape& shape) {
  if (x.elements() == 0) return std::nullopt;
  Shape sizes, steps;  // of x, without sizes of 1
  for (std::size_t d = 0; d < x.shape().size(); ++d) {
    if (x.shape()[d] == 1) continue;
    sizes.push_back(x.shape()[d]);
    steps.push_back(x.strides()[d]);
  }
  Shape strides(shape.size(), 1);
  std::size_t to = shape.size();
  for (std::size_t d = sizes.size(); d-- > 0;) {
    std::int64_t run = sizes[d], covered = 1;
    const std::int64_t step = steps[d];
    for (; d > 0 && steps[d - 1] == step * run; --d) run *= sizes[d - 1];
    while (to > 0 && covered * shape[to - 1] <= run) {
      strides[--to] = step * covered;
      covered *= shape[to];
    }
    if (covered != run) return std::nullopt;
  }
  return strides;
}

// A dense copy of x that shows `shape`.
Tensor reshaped_copy(const Tensor& x, const Shape& shape) {
  const Tensor copy = x.clone();
  return view_of(copy, shape, dense_strides(shape), 0);
}

// Copies `part` into y (whose shape contains it) at `begin` along dim.
void put(const Tensor& part, const Tensor& y, std::size_t dim, std::int64_t begin) {
  const Walk<2> walk(part.shape(), {part.strides(), y.strides()});
  const std::int64_t sx = walk.step(0), sy = walk.step(1);
  dispatch(y.dtype(), [&]<class T>(T) {
    T* const to = data_of<T>(y) + begin * y.strides()[dim];
    const T* const from = data_of<T>(part);
    walk.pieces([&](const auto& at, std::int64_t n) {
      if (sx == 1 && sy == 1)
        std::copy(from + at[0], from + at[0] + n, to + at[1]);
      else
        for (std::int64_t i = 0; i < n; ++i) to[at[1] + i * sy] = from[at[0] + i * sx];
    });
  });
}

}  // namespace

Tensor reshape(const Tensor& x, const Shape& wanted) {
  check_given("reshape", "x", x);
  Shape shape = wanted;
  const auto mismatch = [&] {
    refuse("reshape", "shape: expected as many elements as x ", shape_text(x.shape()), ", got ", shape_text(wanted));
  };
  std::int64_t known = 1;
  for (const std::int64_t size : shape) {
    if (size < -1 || __builtin_mul_overflow(known, size == -1 ? 1 : size, &known)) mismatch();
  }
  const auto open = std::find(shape.begin(), shape.end(), -1);
  if (open != shape.end()) {
    if (std::count(shape.begin(), shape.end(), -1) > 1 || known == 0 || x.elements() % known != 0) mismatch();
    *open = x.elements() / known;
    known *= *open;
  }
  if (known != x.elements()) mismatch();
  const auto strides = strides_for(x, shape);
  const Tensor y = strides ? view_of(x, shape, *strides, 0) : reshaped_copy(x, shape);
  return record("reshape", y, {x},
                [from = x.shape()](const Tensor& dy) -> std::vector<Tensor> { return {reshape(dy, from)}; });
}

Tensor transpose(const Tensor& x, int dim0, int dim1) {
  check_given("transpose", "x", x);
  const std::size_t i = check_dim("transpose", x, dim0), j = check_dim("transpose", x, dim1);
  Shape shape = x.shape(), strides = x.strides();
  std::swap(shape[i], shape[j]);
  std::swap(strides[i], strides[j]);
  return record("transpose", view_of(x, shape, strides, 0), {x},
                [dim0, dim1](const Tensor& dy) -> std::vector<Tensor> { return {transpose(dy, dim0, dim1)}; });
}

Tensor slice(const Tensor& x, int dim, std::int64_t begin, std::int64_t end) {
  check_given("slice", "x", x);
  const std::size_t d = check_dim("slice", x, dim);
  if (begin < 0 || end < begin || end > x.shape()[d]) {
    refuse("slice", "begin and end: expected a range within dimension ", d, " of x ", shape_text(x.shape()), ", got ",
           begin, " and ", end);
  }
  Shape shape = x.shape();
  shape[d] = end - begin;
  return record_into(
      "slice", view_of(x, shape, x.strides(), begin * x.strides()[d]), x,
      [dim, begin, end](const Tensor& dy, const Tensor& dx) { add_in_place(slice(dx, dim, begin, end), dy); });
}

Tensor concat(const std::vector<Tensor>& parts, int dim) {
  if (parts.empty()) refuse("concat", "parts: expected at least one tensor, got none");
  const Tensor& first = parts.front();
  check_floating("concat", "parts[0]", first);
  const std::size_t d = check_dim("concat", first, dim);
  Shape shape = first.shape();
  shape[d] = 0;
  std::vector<std::int64_t> sizes;
  for (const Tensor& part : parts) {
    check_same_dtype("concat", "parts", part, "the first", first);
    Shape rest = part.shape();
    if (rest.size() == shape.size()) rest[d] = shape[d];
    if (rest != shape) {
      refuse("concat", "parts: expected shapes that differ only in dimension ", d, ", got ", shape_text(first.shape()),
             " and ", shape_text(part.shape()));
    }
    sizes.push_back(part.shape()[d]);
    shape[d] += sizes.back();
  }
  const Tensor y = empty(shape, first.dtype());
  std::int64_t at = 0;
  for (const Tensor& part : parts) {
    put(part, y, d, at);
    at += part.shape()[d];
  }
  return record("concat", y, parts, [dim, sizes](const Tensor& dy) {
    std::vector<Tensor> gradients;
    std::int64_t begin = 0;
    for (const std::int64_t size : sizes) {
      gradients.push_back(slice(dy, dim, begin, begin + size));
      begin += size;
    }
    return gradients;
  });
}

}  // namespace keel::nn
