#include "nn/gru_cell.h"

#include "nn/loops.h"
#include "nn/simd/kernels.h"
#include "nn/tape.h"

namespace keel::nn {
namespace {

// Dense rows at any distance from each other: one position of a sequence needs no copy.
Tensor with_dense_rows(const Tensor& x) { return (x.strides()[1] == 1 || x.size(1) == 1 ? x : dense(x)).detach(); }

}  // namespace

// Each row is bound by memory; instead of eleven small operations on the tape, only r, z and n are kept.
Tensor gru_cell(const Tensor& x_gates, const Tensor& h_gates, const Tensor& h_input) {
  const Tensor x = with_dense_rows(x_gates), hg = dense(h_gates).detach(), h = dense(h_input).detach();
  const std::int64_t rows = h.size(0), d = h.size(1);
  const Tensor gates = empty({rows, 3 * d}, h.dtype()), y = empty(h.shape(), h.dtype());
  dispatch(h.dtype(), [&]<class T>(T) {
    for_blocks(rows, rows_per_block(3 * d), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row) {
        const T *const xr = data_of<T>(x) + row * x.strides()[0], *const hr = data_of<T>(hg) + row * 3 * d;
        const T* const before = data_of<T>(h) + row * d;
        T *const r = data_of<T>(gates) + row * 3 * d, *const z = r + d, *const n = z + d;
        T* const to = data_of<T>(y) + row * d;
        for (std::int64_t i = 0; i < 2 * d; ++i) r[i] = xr[i] + hr[i];
        map(Map::sigmoid, r, r, 2 * d);
        for (std::int64_t i = 0; i < d; ++i) n[i] = xr[2 * d + i] + r[i] * hr[2 * d + i];
        map(Map::tanh, n, n, d);
        for (std::int64_t i = 0; i < d; ++i) to[i] = n[i] + z[i] * (before[i] - n[i]);
      }
    });
  });
  return record("gru_cell", y, {x_gates, h_gates, h_input}, [=](const Tensor& gradient) -> std::vector<Tensor> {
    const Tensor dy = dense(gradient), dx = empty(gates.shape(), dy.dtype()), dhg = empty(gates.shape(), dy.dtype());
    const Tensor dh = empty(h.shape(), dy.dtype());
    dispatch(dy.dtype(), [&]<class T>(T) {
      for_blocks(rows, rows_per_block(3 * d), [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t row = begin; row < end; ++row) {
          const T *const r = data_of<T>(gates) + row * 3 * d, *const z = r + d, *const n = z + d;
          const T *const g = data_of<T>(dy) + row * d, *const before = data_of<T>(h) + row * d;
          const T* const h_n = data_of<T>(hg) + row * 3 * d + 2 * d;
          T *const dxr = data_of<T>(dx) + row * 3 * d, *const dhr = data_of<T>(dhg) + row * 3 * d;
          T* const dbefore = data_of<T>(dh) + row * d;
          for (std::int64_t i = 0; i < d; ++i) {
            const T dn = g[i] * (T(1) - z[i]) * (T(1) - n[i] * n[i]);       // h' = n + z·(h − n)
            const T dz = g[i] * (before[i] - n[i]) * z[i] * (T(1) - z[i]);  //
            const T dr = dn * h_n[i] * r[i] * (T(1) - r[i]);                // n = tanh(x_n + r·h_n)
            dxr[i] = dhr[i] = dr;
            dxr[d + i] = dhr[d + i] = dz;
            dxr[2 * d + i] = dn;
            dhr[2 * d + i] = dn * r[i];
            dbefore[i] = g[i] * z[i];
          }
        }
      });
    });
    return {dx, dhg, dh};
  });
}

}  // namespace keel::nn
