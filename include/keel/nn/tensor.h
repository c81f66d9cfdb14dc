#pragma once

// A tensor with gradients. Elements are f32 or f64 (i64 for indices and labels, bool for masks), in reference-counted
// storage: a Tensor is a handle, and copies of it are the same tensor. reshape, transpose and slice share memory
// where they can.
//
//   Tensor w = Tensor::full({3}, 2.0).require_grad();
//   sum(w * w).backward();
//   w.grad();               // 2w
//
// Operations (keel/nn/ops.h) on a tensor that requires a gradient are recorded on a tape: each result holds the node
// that made it. backward() runs the nodes in reverse and frees them, so a step's memory is freed with its loss.

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "keel/dtype.h"
#include "keel/error.h"
#include "keel/export.h"

namespace keel::nn {

using Shape = std::vector<std::int64_t>;

class KEEL_API Tensor {
 public:
  Tensor() = default;  // "not given"

  static Tensor zeros(const Shape& shape, DType dtype = DType::f32);
  static Tensor full(const Shape& shape, double value, DType dtype = DType::f32);
  // A copy of `values` in C order.
  template <class T>
  static Tensor of(const Shape& shape, const std::vector<T>& values) {
    return copy_of(shape, values.data(), values.size(), dtype_of<T>);
  }
  static Tensor of(const Shape& shape, const std::vector<bool>& values);

  [[nodiscard]] bool given() const noexcept { return impl_ != nullptr; }
  DType dtype() const;
  const Shape& shape() const;
  const Shape& strides() const;  // in elements
  int rank() const { return static_cast<int>(shape().size()); }
  std::int64_t size(int dim) const;  // dim −1 is the last
  std::int64_t elements() const;
  bool dense() const;  // C order without gaps

  // The elements of a dense tensor, in place. T is the type of dtype(). Writing to a tensor on the tape invalidates its
  // gradients.
  template <class T>
  std::span<T> data() const {
    return {static_cast<T*>(dense_data(dtype_of<T>)), static_cast<std::size_t>(elements())};
  }
  double item() const;  // of a one-element tensor
  double at(std::initializer_list<std::int64_t> index) const;
  [[nodiscard]] std::vector<double> values() const;  // all, in C order

  // A leaf of the tape: backward() adds to its grad(). Raises for the result of an operation.
  Tensor& require_grad();
  bool requires_grad() const;
  Tensor grad() const;  // not given before the first backward()
  void set_grad(const Tensor& grad) const;
  void zero_grad() const;

  // Gradients of this scalar (or, with `seed`, of Σ seed·this) with respect to every leaf. A tape runs once.
  void backward(const Tensor& seed = {}) const;

  [[nodiscard]] Tensor detach() const;         // the same elements, off the tape
  [[nodiscard]] Tensor clone() const;          // in new memory, dense, off the tape
  [[nodiscard]] Tensor to(DType dtype) const;  // clone() in another dtype

  struct Impl;
  const std::shared_ptr<Impl>& impl() const { return impl_; }
  explicit Tensor(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}

 private:
  static Tensor copy_of(const Shape& shape, const void* values, std::size_t count, DType dtype);
  void* dense_data(DType dtype) const;

  std::shared_ptr<Impl> impl_;
};

// While one is alive, operations on this thread record no tape.
class KEEL_API NoGrad {
 public:
  [[nodiscard]] NoGrad();
  ~NoGrad();
  NoGrad(const NoGrad&) = delete;
  NoGrad& operator=(const NoGrad&) = delete;
};

// At most this many threads for the training layer in this process; 0, the default, means all that the process may
// use. Results have the same bits for any number.
KEEL_API void set_threads(int threads);

// "(2, 3)"
[[nodiscard]] KEEL_API std::string shape_text(const Shape& shape);

}  // namespace keel::nn
