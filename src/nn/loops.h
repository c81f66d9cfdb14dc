#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>

#include "nn/tape.h"
#include "runtime/parallel.h"

// How the training layer loops over elements. Work is split into blocks by the shape alone, never by the number of
// threads, so that results have the same bits for any number.
namespace keel::nn {

// f(float{}) or f(double{})
template <class F>
decltype(auto) dispatch(DType dtype, F&& f) {
  return dtype == DType::f64 ? f(double{}) : f(float{});
}

// body(begin, end) over [0, count) in blocks of `block`.
template <class Body>
void for_blocks(std::int64_t count, std::int64_t block, const Body& body) {
  if (count <= block) {
    if (count > 0) body(std::int64_t{0}, count);
    return;
  }
  parallel_tasks((count + block - 1) / block, thread_count(),
                 [&](std::int64_t i) { body(i * block, std::min(count, (i + 1) * block)); });
}

// Elements of work worth a task.
inline constexpr std::int64_t kGrain = 1 << 15;

// Rows of `width` elements per task.
inline std::int64_t rows_per_block(std::int64_t width) {
  return std::max<std::int64_t>(1, kGrain / std::max<std::int64_t>(1, width));
}

// Several arrays walked together, in C order over one shape, each by its own strides (0 repeats).
template <std::size_t Count>
class Walk {
 public:
  Walk(const Shape& shape, const std::array<Shape, Count>& strides) {
    // Dimensions that are contiguous in every array are merged into one.
    for (std::size_t d = 0; d < shape.size(); ++d) {
      if (shape[d] == 1) continue;
      bool joins = !shape_.empty();
      for (std::size_t a = 0; joins && a < Count; ++a) joins = strides_[a].back() == strides[a][d] * shape[d];
      if (joins) {
        shape_.back() *= shape[d];
      } else {
        shape_.push_back(shape[d]);
      }
      for (std::size_t a = 0; a < Count; ++a) {
        if (joins)
          strides_[a].back() = strides[a][d];
        else
          strides_[a].push_back(strides[a][d]);
      }
    }
    if (shape_.empty()) {
      shape_ = {1};
      for (Shape& s : strides_) s = {0};
    }
    for (std::size_t d = 0; d + 1 < shape_.size(); ++d) rows_ *= shape_[d];
  }

  std::int64_t rows() const { return rows_; }
  std::int64_t width() const { return shape_.back(); }
  std::int64_t step(std::size_t array) const { return strides_[array].back(); }

  // body(offsets, count) for pieces that cover everything, in parallel: `count` elements, step(a) apart from
  // offsets[a].
  template <class Body>
  void pieces(const Body& body) const {
    const std::int64_t chunks = width() > 2 * kGrain ? (width() + kGrain - 1) / kGrain : 1;
    if (chunks == 1) {
      for_blocks(rows_, rows_per_block(width()), [&](std::int64_t begin, std::int64_t end) {
        rows(begin, end, [&](const auto& at) { body(at, width()); });
      });
      return;
    }
    parallel_tasks(rows_ * chunks, thread_count(), [&](std::int64_t task) {
      rows(task / chunks, task / chunks + 1, [&](auto at) {
        const std::int64_t begin = task % chunks * kGrain;
        for (std::size_t a = 0; a < Count; ++a) at[a] += begin * step(a);
        body(at, std::min(kGrain, width() - begin));
      });
    });
  }

  // body(offsets) for each row of [begin, end), in order.
  template <class Body>
  void rows(std::int64_t begin, std::int64_t end, const Body& body) const {
    const std::size_t outer = shape_.size() - 1;
    Shape index(outer);
    std::array<std::int64_t, Count> at{};
    std::int64_t left = begin;
    for (std::size_t d = outer; d-- > 0;) {
      index[d] = left % shape_[d];
      left /= shape_[d];
      for (std::size_t a = 0; a < Count; ++a) at[a] += index[d] * strides_[a][d];
    }
    for (std::int64_t row = begin; row < end; ++row) {
      body(at);
      for (std::size_t d = outer; d-- > 0;) {
        for (std::size_t a = 0; a < Count; ++a) at[a] += strides_[a][d];
        if (++index[d] < shape_[d]) break;
        for (std::size_t a = 0; a < Count; ++a) at[a] -= strides_[a][d] * shape_[d];
        index[d] = 0;
      }
    }
  }

 private:
  Shape shape_;
  std::array<Shape, Count> strides_;
  std::int64_t rows_ = 1;
};

}  // namespace keel::nn
