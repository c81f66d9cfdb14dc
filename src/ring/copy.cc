#include "ring/copy.h"

#include <algorithm>
#include <cstring>

#include "core/element.h"
#include "core/slice.h"
#include "runtime/machine.h"
#include "runtime/parallel.h"

namespace keel::ring {
namespace {

constexpr std::int64_t kOneThread = 1 << 16;  // elements that are not worth waking a thread for

template <class Work>
void for_rows(const MutableTensorView& to, int threads, Work work) {
  const auto& s = to.shape;
  const std::int64_t rows = s[0] * s[1] * s[2];
  if (rows == 0 || s[3] == 0) return;
  const bool alone = rows * s[3] < kOneThread;
  parallel_tasks(s[0] * s[1],
                 alone         ? 1
                 : threads > 0 ? threads
                               : machine().threads,
                 [&](std::int64_t x) {
                   for (std::int64_t n = 0; n < s[2]; ++n) work(x / s[1], x % s[1], n);
                 });
}

template <class T>
const T* row_of(const BasicView<4, const void*>& x, std::int64_t b, std::int64_t h, std::int64_t n) {
  return static_cast<const T*>(x.data) + offset(x, b, h, n, 0);
}
template <class T>
T* row_of(const BasicView<4, void*>& x, std::int64_t b, std::int64_t h, std::int64_t n) {
  return static_cast<T*>(x.data) + offset(x, b, h, n, 0);
}

template <class T>
void add_rows(const TensorView& from, const MutableTensorView& to, int threads) {
  for_rows(to, threads, [&](std::int64_t b, std::int64_t h, std::int64_t n) {
    const T* const x = row_of<T>(from, b, h, n);
    T* const y = row_of<T>(to, b, h, n);
    if (from.strides[3] == 1 && to.strides[3] == 1) {
      for (std::int64_t d = 0; d < to.shape[3]; ++d) y[d] += x[d];
      return;
    }
    for (std::int64_t d = 0; d < to.shape[3]; ++d) y[d * to.strides[3]] += x[d * from.strides[3]];
  });
}

}  // namespace

Block BlockShape::block(const Needs& rows, const void* memory) const {
  const auto all = views<const void*>(rows, memory);
  return {rows, {all[0], all[2]}, {all[1], all[3]}};
}

void pack(const BlockShape& shape, const Block& from, const Needs& rows, void* to, int threads) {
  const auto all = shape.views<void*>(rows, to);
  for (std::size_t x = 0; x < 2; ++x) {
    const std::int64_t first = from.rows[x].begin, full = from.rows[x].size();
    const auto part = [&](const TensorView& y) {
      return slice(y, 2, rows[x].begin - first, rows[x].end - first, full);
    };
    if (rows[x].size() == 0) continue;
    copy(part(from.k[x]), all[2 * x], threads);
    copy(part(from.v[x]), all[2 * x + 1], threads);
  }
}

void copy(const TensorView& from, const MutableTensorView& to, int threads) {
  const bool runs = from.dtype == to.dtype && from.strides[3] == 1 && to.strides[3] == 1;
  for_rows(to, threads, [&](std::int64_t b, std::int64_t h, std::int64_t n) {
    if (runs) {
      const std::int64_t item = size_of(to.dtype);
      std::memcpy(static_cast<std::byte*>(to.data) + offset(to, b, h, n, 0) * item,
                  static_cast<const std::byte*>(from.data) + offset(from, b, h, n, 0) * item,
                  static_cast<std::size_t>(to.shape[3] * item));
      return;
    }
    for (std::int64_t d = 0; d < to.shape[3]; ++d) store_at(to, load_at(from, b, h, n, d), b, h, n, d);
  });
}

void add(const TensorView& from, const MutableTensorView& to, int threads) {
  if (from.dtype == DType::f32 && to.dtype == DType::f32) return add_rows<float>(from, to, threads);
  if (from.dtype == DType::f64 && to.dtype == DType::f64) return add_rows<double>(from, to, threads);
  for_rows(to, threads, [&](std::int64_t b, std::int64_t h, std::int64_t n) {
    for (std::int64_t d = 0; d < to.shape[3]; ++d) {
      store_at(to, load_at(to, b, h, n, d) + load_at(from, b, h, n, d), b, h, n, d);
    }
  });
}

}  // namespace keel::ring
