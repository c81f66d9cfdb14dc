#pragma once

#include <initializer_list>
#include <utility>

#include "core/message.h"
#include "keel/nn/tensor.h"

// The checks of the training layer. Each raises "[operation] argument: expected …, got …" before any work.
namespace keel::nn {

template <class... Parts>
[[noreturn]] void refuse(const char* operation, const Parts&... parts) {
  throw Error(ErrorCode::invalid_argument, keel::concat("[", operation, "] ", parts...));
}

template <class... Parts>
[[noreturn]] void refuse_dtype(const char* operation, const Parts&... parts) {
  throw Error(ErrorCode::wrong_dtype, keel::concat("[", operation, "] ", parts...));
}

inline void check_given(const char* operation, const char* name, const Tensor& x) {
  if (!x.given()) refuse(operation, name, ": expected a tensor, got none");
}

inline void check_dtype(const char* operation, const char* name, const Tensor& x, DType dtype) {
  check_given(operation, name, x);
  if (x.dtype() != dtype)
    refuse_dtype(operation, name, ": expected dtype ", name_of(dtype), ", got ", name_of(x.dtype()));
}

inline void check_floating(const char* operation, const char* name, const Tensor& x) {
  check_given(operation, name, x);
  if (x.dtype() != DType::f32 && x.dtype() != DType::f64) {
    refuse_dtype(operation, name, ": expected dtype f32 or f64, got ", name_of(x.dtype()));
  }
}

// Floating, and of the dtype of `first`.
inline void check_same_dtype(const char* operation, const char* name, const Tensor& x, const char* first_name,
                             const Tensor& first) {
  check_floating(operation, name, x);
  if (x.dtype() != first.dtype()) {
    refuse_dtype(operation, name, ": expected dtype ", name_of(first.dtype()), " as in ", first_name, ", got ",
                 name_of(x.dtype()));
  }
}

inline void check_shape(const char* operation, const char* name, const Tensor& x, const Shape& expected) {
  check_given(operation, name, x);
  if (x.shape() != expected) {
    refuse(operation, name, ": expected shape ", shape_text(expected), ", got ", shape_text(x.shape()));
  }
}

// `dim` as an index from the front, where −1 is the last.
inline std::size_t check_dim(const char* operation, const Tensor& x, int dim) {
  const int rank = x.rank(), from_front = dim < 0 ? dim + rank : dim;
  if (from_front < 0 || from_front >= rank) {
    refuse(operation, "dim: expected one of the dimensions of x ", shape_text(x.shape()), ", got ", dim);
  }
  return static_cast<std::size_t>(from_front);
}

}  // namespace keel::nn
