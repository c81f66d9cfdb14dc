#include "keel/nn/tensor.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <numeric>

#include "core/element.h"
#include "nn/check.h"
#include "nn/loops.h"
#include "nn/tape.h"
#include "runtime/machine.h"

namespace keel::nn {
namespace {

std::atomic<int> wanted_threads = 0;

constexpr std::int64_t kMaxElements = std::int64_t{1} << 56;

std::int64_t count(const char* operation, const Shape& shape) {
  std::int64_t elements = 1, extent = 1;  // extent: zeros counted as ones, so that strides fit too
  for (const std::int64_t size : shape) {
    if (size < 0) refuse(operation, "shape: expected sizes of at least 0, got ", shape_text(shape));
    if (__builtin_mul_overflow(extent, std::max<std::int64_t>(size, 1), &extent) || extent > kMaxElements) {
      refuse(operation, "shape: expected at most 2^56 elements, got ", shape_text(shape));
    }
    elements *= size;
  }
  return elements;
}

// The elements of x, in C order of its shape, into dense memory.
template <class From, class To>
void copy_elements(const Tensor& x, To* to) {
  const Walk<2> walk(x.shape(), {x.strides(), dense_strides(x.shape())});
  const From* const from = data_of<From>(x);
  const std::int64_t step = walk.step(0);
  walk.pieces([&](const auto& at, std::int64_t n) {
    const From* const source = from + at[0];
    To* const target = to + at[1];
    for (std::int64_t i = 0; i < n; ++i) target[i] = static_cast<To>(source[i * step]);
  });
}

}  // namespace

Shape dense_strides(const Shape& shape) {
  Shape strides(shape.size());
  std::int64_t step = 1;
  for (std::size_t d = shape.size(); d-- > 0;) {
    strides[d] = step;
    step *= std::max<std::int64_t>(shape[d], 1);
  }
  return strides;
}

std::string shape_text(const Shape& shape) {
  std::string text = "(";
  for (std::size_t i = 0; i < shape.size(); ++i) text += (i == 0 ? "" : ", ") + std::to_string(shape[i]);
  return text + ")";
}

void set_threads(int threads) {
  if (threads < 0) refuse("set_threads", "threads: expected at least 0, got ", threads);
  wanted_threads = threads;
}

int thread_count() {
  const int wanted = wanted_threads;
  return wanted > 0 ? wanted : machine().threads;
}

Tensor empty(const Shape& shape, DType dtype) {
  auto impl = std::make_shared<Tensor::Impl>();
  impl->elements = count("tensor", shape);
  impl->dtype = dtype;
  impl->shape = shape;
  impl->strides = dense_strides(shape);
  try {
    impl->storage = std::make_shared<Storage>(static_cast<std::size_t>(impl->elements * size_of(dtype)));
  } catch (const std::bad_alloc&) {
    throw Error(ErrorCode::out_of_memory,
                keel::concat("[tensor] expected memory for ", shape_text(shape), " of ", name_of(dtype), ", got none"));
  }
  return Tensor(std::move(impl));
}

Tensor empty_like(const Tensor& x) { return empty_in_order_of(x, x.shape()); }

Tensor empty_in_order_of(const Tensor& x, const Shape& shape) {
  const std::size_t rank = x.shape().size();
  std::vector<std::size_t> order(rank);  // dimensions from the outermost in memory
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return x.strides()[a] > x.strides()[b]; });
  Tensor y = empty(shape, x.dtype());
  std::int64_t step = 1;
  for (std::size_t i = rank; i-- > 0;) {
    y.impl()->strides[order[i]] = step;
    step *= std::max<std::int64_t>(shape[order[i]], 1);
  }
  return y;
}

Tensor view_of(const Tensor& x, Shape shape, Shape strides, std::int64_t offset) {
  auto impl = std::make_shared<Tensor::Impl>(*x.impl());
  impl->elements = count("tensor", shape);
  impl->shape = std::move(shape);
  impl->strides = std::move(strides);
  impl->offset += offset;
  impl->node = nullptr;
  return Tensor(std::move(impl));
}

Tensor dense(const Tensor& x) { return x.dense() ? x : x.clone(); }

Tensor Tensor::zeros(const Shape& shape, DType dtype) {
  Tensor y = empty(shape, dtype);
  std::memset(y.impl_->storage->data(), 0, static_cast<std::size_t>(y.elements() * size_of(dtype)));
  return y;
}

Tensor Tensor::full(const Shape& shape, double value, DType dtype) {
  Tensor y = empty(shape, dtype);
  for (std::int64_t i = 0; i < y.elements(); ++i) store(y.impl_->storage->data(), dtype, i, value);
  return y;
}

Tensor Tensor::copy_of(const Shape& shape, const void* values, std::size_t number, DType dtype) {
  if (static_cast<std::int64_t>(number) != count("tensor", shape)) {
    refuse("tensor", "values: expected as many as shape ", shape_text(shape), " has elements, got ", number);
  }
  Tensor y = empty(shape, dtype);
  if (number > 0) std::memcpy(y.impl_->storage->data(), values, number * static_cast<std::size_t>(size_of(dtype)));
  return y;
}

Tensor Tensor::of(const Shape& shape, const std::vector<bool>& values) {
  const std::vector<std::uint8_t> bytes(values.begin(), values.end());
  return copy_of(shape, bytes.data(), bytes.size(), DType::boolean);
}

DType Tensor::dtype() const {
  check_given("tensor", "dtype()", *this);
  return impl_->dtype;
}
const Shape& Tensor::shape() const {
  check_given("tensor", "shape()", *this);
  return impl_->shape;
}
const Shape& Tensor::strides() const {
  check_given("tensor", "strides()", *this);
  return impl_->strides;
}
std::int64_t Tensor::size(int dim) const { return shape()[check_dim("size", *this, dim)]; }
std::int64_t Tensor::elements() const {
  check_given("tensor", "elements()", *this);
  return impl_->elements;
}

bool Tensor::dense() const {
  if (elements() == 0) return true;
  std::int64_t step = 1;
  for (std::size_t d = impl_->shape.size(); d-- > 0;) {
    if (impl_->shape[d] != 1 && impl_->strides[d] != step) return false;
    step *= impl_->shape[d];
  }
  return true;
}

void* Tensor::dense_data(DType wanted) const {
  check_dtype("data", "T", *this, wanted);
  if (!dense()) {
    refuse("data", "expected a dense tensor (clone() makes one), got shape ", shape_text(shape()), " with strides ",
           shape_text(strides()));
  }
  return impl_->storage->data() + impl_->offset * size_of(wanted);
}

double Tensor::item() const {
  if (elements() != 1) refuse("item", "expected a tensor of one element, got shape ", shape_text(shape()));
  return load(impl_->storage->data(), impl_->dtype, impl_->offset);
}

double Tensor::at(std::initializer_list<std::int64_t> index) const {
  const Shape i(index);
  bool fits = i.size() == shape().size();
  std::int64_t place = impl_->offset;
  for (std::size_t d = 0; fits && d < i.size(); ++d) {
    fits = i[d] >= 0 && i[d] < impl_->shape[d];
    place += i[d] * impl_->strides[d];
  }
  if (!fits) refuse("at", "index: expected one within shape ", shape_text(shape()), ", got ", shape_text(i));
  return load(impl_->storage->data(), impl_->dtype, place);
}

std::vector<double> Tensor::values() const {
  const Tensor x = nn::dense(*this);
  std::vector<double> all(static_cast<std::size_t>(elements()));
  for (std::size_t i = 0; i < all.size(); ++i) {
    all[i] = load(x.impl_->storage->data(), x.impl_->dtype, x.impl_->offset + static_cast<std::int64_t>(i));
  }
  return all;
}

Tensor Tensor::detach() const {
  check_given("detach", "x", *this);
  return view_of(*this, impl_->shape, impl_->strides, 0);
}

Tensor Tensor::clone() const {
  Tensor y = empty(shape(), dtype());
  switch (dtype()) {
    case DType::f64:
      copy_elements<double>(*this, data_of<double>(y));
      break;
    case DType::f32:
      copy_elements<float>(*this, data_of<float>(y));
      break;
    case DType::i64:
      copy_elements<std::int64_t>(*this, data_of<std::int64_t>(y));
      break;
    case DType::boolean:
      copy_elements<std::uint8_t>(*this, data_of<std::uint8_t>(y));
      break;
    default:
      refuse_dtype("clone", "x: expected dtype f64, f32, i64 or bool, got ", name_of(dtype()));
  }
  return y;
}

Tensor Tensor::to(DType wanted) const {
  check_floating("to", "x", *this);
  if (wanted == dtype()) return clone();
  if (wanted != DType::f32 && wanted != DType::f64) refuse("to", "dtype: expected f32 or f64, got ", name_of(wanted));
  Tensor y = empty(shape(), wanted);
  if (wanted == DType::f32)
    copy_elements<double>(*this, data_of<float>(y));
  else
    copy_elements<float>(*this, data_of<double>(y));
  return y;
}

}  // namespace keel::nn
