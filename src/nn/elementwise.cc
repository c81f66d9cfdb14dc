#include <algorithm>

#include "core/dropout.h"
#include "keel/nn/ops.h"
#include "nn/check.h"
#include "nn/loops.h"
#include "nn/reduce.h"
#include "nn/simd/kernels.h"
#include "nn/tape.h"

namespace keel::nn {
namespace {

Shape broadcast_shape(const char* operation, const Tensor& a, const Tensor& b) {
  const std::size_t rank = std::max(a.shape().size(), b.shape().size());
  Shape shape(rank);
  for (std::size_t i = 1; i <= rank; ++i) {  // from the right
    const std::int64_t sa = i <= a.shape().size() ? a.shape()[a.shape().size() - i] : 1;
    const std::int64_t sb = i <= b.shape().size() ? b.shape()[b.shape().size() - i] : 1;
    if (sa != sb && sa != 1 && sb != 1) {
      refuse(operation, "a and b: expected shapes that broadcast, got ", shape_text(a.shape()), " and ",
             shape_text(b.shape()));
    }
    shape[rank - i] = sa == 1 ? sb : sa;
  }
  return shape;
}

// y = f(a, b), broadcast.
template <class T, class F>
void apply(const Tensor& a, const Tensor& b, const Tensor& y, const F& f) {
  const Walk<3> walk(y.shape(), {broadcast_strides(a, y.shape()), broadcast_strides(b, y.shape()), y.strides()});
  const std::int64_t sa = walk.step(0), sb = walk.step(1), sy = walk.step(2);
  walk.pieces([&](const auto& at, std::int64_t n) {
    const T* const pa = data_of<T>(a) + at[0];
    const T* const pb = data_of<T>(b) + at[1];
    T* const py = data_of<T>(y) + at[2];
    if (sy == 1 && sa == 1 && sb == 1) {
      for (std::int64_t i = 0; i < n; ++i) py[i] = f(pa[i], pb[i]);
    } else if (sy == 1 && sa == 1 && sb == 0) {
      for (std::int64_t i = 0; i < n; ++i) py[i] = f(pa[i], pb[0]);
    } else {
      for (std::int64_t i = 0; i < n; ++i) py[i * sy] = f(pa[i * sa], pb[i * sb]);
    }
  });
}

template <class F>
Tensor binary(const char* operation, const Tensor& a, const Tensor& b, const F& f) {
  check_floating(operation, "a", a);
  check_same_dtype(operation, "b", b, "a", a);
  const Shape shape = broadcast_shape(operation, a, b);
  Tensor y =
      a.shape() == shape && b.shape() == shape && a.strides() == b.strides() ? empty_like(a) : empty(shape, a.dtype());
  dispatch(a.dtype(), [&]<class T>(T) { apply<T>(a, b, y, f); });
  return y;
}

Tensor unary(const char* operation, Map f, const Tensor& input) {
  check_floating(operation, "x", input);
  const Tensor x = dense(input).detach();
  const Tensor y = empty(x.shape(), x.dtype());
  dispatch(x.dtype(), [&]<class T>(T) {
    for_blocks(x.elements(), kGrain, [&](std::int64_t begin, std::int64_t end) {
      map(f, data_of<T>(x) + begin, data_of<T>(y) + begin, end - begin);
    });
  });
  const Tensor saved = saves_output(f) ? y.detach() : x;
  return record(operation, y, {input}, [f, saved](const Tensor& gradient) -> std::vector<Tensor> {
    const Tensor dy = dense(gradient), dx = empty(dy.shape(), dy.dtype());
    dispatch(dy.dtype(), [&]<class T>(T) {
      for_blocks(dy.elements(), kGrain, [&](std::int64_t begin, std::int64_t end) {
        map_backward(f, data_of<T>(saved) + begin, data_of<T>(dy) + begin, data_of<T>(dx) + begin, end - begin);
      });
    });
    return {dx};
  });
}

}  // namespace

void add_in_place(const Tensor& x, const Tensor& y) {
  dispatch(x.dtype(), [&]<class T>(T) { apply<T>(x, y, x, [](T a, T b) { return a + b; }); });
}

Tensor add(const Tensor& a, const Tensor& b) {
  const Tensor y = binary("add", a, b, [](auto x, auto z) { return x + z; });
  return record("add", y, {a, b}, [sa = a.shape(), sb = b.shape()](const Tensor& dy) -> std::vector<Tensor> {
    return {sum_to(dy, sa), sum_to(dy, sb)};
  });
}

Tensor sub(const Tensor& a, const Tensor& b) {
  const Tensor y = binary("sub", a, b, [](auto x, auto z) { return x - z; });
  return record("sub", y, {a, b}, [sa = a.shape(), sb = b.shape()](const Tensor& dy) -> std::vector<Tensor> {
    return {sum_to(dy, sa), mul(sum_to(dy, sb), -1.0)};
  });
}

Tensor mul(const Tensor& a, const Tensor& b) {
  const Tensor y = binary("mul", a, b, [](auto x, auto z) { return x * z; });
  return record("mul", y, {a, b}, [a, b](const Tensor& dy) -> std::vector<Tensor> {
    return {a.requires_grad() ? sum_to(mul(dy, b), a.shape()) : Tensor(),
            b.requires_grad() ? sum_to(mul(dy, a), b.shape()) : Tensor()};
  });
}

Tensor div(const Tensor& a, const Tensor& b) {
  const Tensor y = binary("div", a, b, [](auto x, auto z) { return x / z; });
  return record("div", y, {a, b}, [a, b](const Tensor& dy) -> std::vector<Tensor> {
    const Tensor da = div(dy, b);  // and db = −dy·a/b²
    return {sum_to(da, a.shape()), b.requires_grad() ? mul(sum_to(mul(da, div(a, b)), b.shape()), -1.0) : Tensor()};
  });
}

Tensor add(const Tensor& a, double b) {
  check_floating("add", "a", a);
  return add(a, Tensor::full({}, b, a.dtype()));
}

Tensor mul(const Tensor& a, double b) {
  check_floating("mul", "a", a);
  return mul(a, Tensor::full({}, b, a.dtype()));
}

Tensor relu(const Tensor& x) { return unary("relu", Map::relu, x); }
Tensor gelu(const Tensor& x) { return unary("gelu", Map::gelu, x); }
Tensor tanh(const Tensor& x) { return unary("tanh", Map::tanh, x); }
Tensor sigmoid(const Tensor& x) { return unary("sigmoid", Map::sigmoid, x); }
Tensor exp(const Tensor& x) { return unary("exp", Map::exp, x); }
Tensor log(const Tensor& x) { return unary("log", Map::log, x); }

Tensor dropout(const Tensor& x, double p, Random& random) {
  check_floating("dropout", "x", x);
  if (!(p >= 0.0 && p <= 1.0)) refuse("dropout", "p: expected a probability from 0 to 1, got ", p);
  if (p == 0.0) return x;
  const Dropout kept(p, random.bits());
  const Tensor factors = empty(x.shape(), x.dtype());
  dispatch(x.dtype(), [&]<class T>(T) {
    T* const to = data_of<T>(factors);
    // Row r of 2^30 elements: words of the counter are 32 bits wide.
    for_blocks(x.elements(), kGrain, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i)
        to[i] = static_cast<T>(kept.multiplier(0, 0, i >> 30, i & ((1 << 30) - 1)));
    });
  });
  return mul(x, factors);
}

}  // namespace keel::nn
