#include "keel/nn/ops.h"
#include "nn/check.h"
#include "nn/loops.h"
#include "nn/simd/kernels.h"
#include "nn/tape.h"

namespace keel::nn {

Tensor layer_norm(const Tensor& input, const Tensor& gain, const Tensor& shift, double epsilon) {
  check_floating("layer_norm", "x", input);
  check_same_dtype("layer_norm", "gain", gain, "x", input);
  check_same_dtype("layer_norm", "shift", shift, "x", input);
  if (input.rank() < 1 || gain.shape() != Shape{input.size(-1)} || shift.shape() != gain.shape()) {
    refuse("layer_norm", "x, gain and shift: expected (…, d), (d) and (d), got ", shape_text(input.shape()), ", ",
           shape_text(gain.shape()), " and ", shape_text(shift.shape()));
  }
  if (!(epsilon >= 0)) refuse("layer_norm", "epsilon: expected at least 0, got ", epsilon);
  const std::int64_t n = input.size(-1), rows = n == 0 ? 0 : input.elements() / n;
  const Tensor x = dense(input).detach(), g = dense(gain).detach(), b = dense(shift).detach();
  const Tensor y = empty(x.shape(), x.dtype()), moments = empty({rows, 2}, x.dtype());
  dispatch(x.dtype(), [&]<class T>(T) {
    for_blocks(rows, rows_per_block(n), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row) {
        const Moments<T> m = normalise(data_of<T>(x) + row * n, data_of<T>(g), data_of<T>(b), static_cast<T>(epsilon),
                                       data_of<T>(y) + row * n, n);
        data_of<T>(moments)[2 * row] = m.mean;
        data_of<T>(moments)[2 * row + 1] = m.rstd;
      }
    });
  });
  return record("layer_norm", y, {input, gain, shift}, [=](const Tensor& gradient) -> std::vector<Tensor> {
    const Tensor dy = dense(gradient), dx = empty(x.shape(), x.dtype());
    const Tensor dgain = empty({n}, x.dtype()), dshift = empty({n}, x.dtype());
    const std::int64_t block = rows_per_block(n), blocks = (rows + block - 1) / block;
    dispatch(x.dtype(), [&]<class T>(T) {
      std::vector<T> partial(static_cast<std::size_t>(2 * blocks * n));  // dgain and dshift of each block
      for_blocks(rows, block, [&](std::int64_t begin, std::int64_t end) {
        T* const sums = partial.data() + begin / block * 2 * n;
        for (std::int64_t row = begin; row < end; ++row) {
          const T* const m = data_of<T>(moments) + 2 * row;
          normalise_backward<T>(data_of<T>(x) + row * n, data_of<T>(g), {m[0], m[1]}, data_of<T>(dy) + row * n,
                                {data_of<T>(dx) + row * n, sums, sums + n}, n);
        }
      });
      for (std::int64_t i = 0; i < 2 * n; ++i) {
        double total = 0;
        for (std::int64_t k = 0; k < blocks; ++k)
          total += static_cast<double>(partial[static_cast<std::size_t>(k * 2 * n + i)]);
        (i < n ? data_of<T>(dgain)[i] : data_of<T>(dshift)[i - n]) = static_cast<T>(total);
      }
    });
    return {dx, dgain, dshift};
  });
}

}  // namespace keel::nn
