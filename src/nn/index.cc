#include <algorithm>

#include "keel/nn/ops.h"
#include "nn/check.h"
#include "nn/loops.h"
#include "nn/tape.h"

namespace keel::nn {

Tensor embedding(const Tensor& table, const Tensor& ids) {
  check_floating("embedding", "table", table);
  check_dtype("embedding", "ids", ids, DType::i64);
  if (table.rank() != 2) refuse("embedding", "table: expected shape (V, d), got ", shape_text(table.shape()));
  const std::int64_t rows = table.size(0), d = table.size(1);
  const Tensor from = dense(table).detach(), place = dense(ids).detach();
  for (const std::int64_t id : place.data<std::int64_t>()) {
    if (id < 0 || id >= rows) {
      refuse("embedding", "ids: expected values from 0 to ", rows - 1, ", the rows of table ",
             shape_text(table.shape()), ", got ", id);
    }
  }
  Shape shape = ids.shape();
  shape.push_back(d);
  const Tensor y = empty(shape, table.dtype());
  dispatch(table.dtype(), [&]<class T>(T) {
    T* to = data_of<T>(y);
    for (const std::int64_t id : place.data<std::int64_t>()) to = std::copy_n(data_of<T>(from) + id * d, d, to);
  });
  return record("embedding", y, {table}, [place, rows, d](const Tensor& gradient) -> std::vector<Tensor> {
    const Tensor dy = dense(gradient), dtable = Tensor::zeros({rows, d}, dy.dtype());
    dispatch(dy.dtype(), [&]<class T>(T) {
      const T* g = data_of<T>(dy);
      for (const std::int64_t id : place.data<std::int64_t>()) {
        T* const to = data_of<T>(dtable) + id * d;
        for (std::int64_t i = 0; i < d; ++i) to[i] += g[i];
        g += d;
      }
    });
    return {dtable};
  });
}

Tensor gather(const Tensor& x, int dim, const Tensor& index) {
  check_floating("gather", "x", x);
  check_dtype("gather", "index", index, DType::i64);
  const std::size_t along = check_dim("gather", x, dim);
  bool fits = index.rank() == x.rank();
  for (std::size_t d = 0; fits && d < x.shape().size(); ++d) fits = d == along || index.shape()[d] <= x.shape()[d];
  if (!fits) {
    refuse("gather", "x and index: expected the same rank and an index no larger than x except along dimension ", along,
           ", got ", shape_text(x.shape()), " and ", shape_text(index.shape()));
  }
  const Tensor place = dense(index).detach();
  for (const std::int64_t id : place.data<std::int64_t>()) {
    if (id < 0 || id >= x.shape()[along]) {
      refuse("gather", "index: expected values from 0 to ", x.shape()[along] - 1, ", the size of dimension ", along,
             " of x ", shape_text(x.shape()), ", got ", id);
    }
  }
  // visit(offset in index, offset in an array with these strides) for each element of index.
  const auto visit = [along, place](Shape strides, const auto& body) {
    const std::int64_t step = strides[along];
    strides[along] = 0;
    const Walk<2> walk(place.shape(), {place.strides(), strides});
    const std::int64_t* const id = data_of<std::int64_t>(place);
    if (place.elements() == 0) return;
    walk.rows(0, walk.rows(), [&](const auto& at) {
      for (std::int64_t i = 0; i < walk.width(); ++i) {
        const std::int64_t from = at[0] + i * walk.step(0);
        body(from, at[1] + i * walk.step(1) + id[from] * step);
      }
    });
  };
  const Tensor y = empty(place.shape(), x.dtype());
  dispatch(x.dtype(), [&]<class T>(T) {
    visit(x.strides(), [&](std::int64_t to, std::int64_t from) { data_of<T>(y)[to] = data_of<T>(x)[from]; });
  });
  return record("gather", y, {x}, [visit, full = x.shape()](const Tensor& gradient) -> std::vector<Tensor> {
    const Tensor dy = dense(gradient), dx = Tensor::zeros(full, dy.dtype());
    dispatch(dy.dtype(), [&]<class T>(T) {
      visit(dx.strides(), [&](std::int64_t from, std::int64_t to) { data_of<T>(dx)[to] += data_of<T>(dy)[from]; });
    });
    return {dx};
  });
}

}  // namespace keel::nn
