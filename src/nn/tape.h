#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "keel/nn/tensor.h"

namespace keel::nn {

// Memory of a tensor, aligned to a cache line. Freed blocks are kept for the next request of their size, since a
// training step asks for the same ones again and fresh pages are expensive.
class Storage {
 public:
  explicit Storage(std::size_t bytes);
  ~Storage();
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;
  std::byte* data() const { return data_; }

 private:
  std::byte* data_;
  std::size_t bytes_;
};

// Bytes of the tensors that this thread has made and not freed, and their peak since watch_memory().
struct MemoryUse {
  std::int64_t now = 0, most = 0;
};
MemoryUse memory_use();
void watch_memory();

// Maps the gradient with respect to the result to those with respect to the inputs; not given if an input needs none.
using Backward = std::function<std::vector<Tensor>(const Tensor& dy)>;

// The same for a part of one input: adds to that input's gradient, which exists and is not shared. A loop that takes
// a sequence apart then costs no more than the sequence.
using BackwardInto = std::function<void(const Tensor& dy, const Tensor& dx)>;

// One entry of the tape. A leaf (a parameter) has no backward.
struct Node {
  std::vector<std::shared_ptr<Node>> inputs;  // null if an input needs no gradient
  Backward backward;
  BackwardInto into;  // instead of `backward`
  Shape shape;        // of the input of `into`
  Tensor grad;
  std::uint64_t order = 0;  // a result comes after its inputs
  const char* operation = nullptr;
  bool used = false;

  ~Node();
};

struct Tensor::Impl {
  std::shared_ptr<Storage> storage;
  std::int64_t offset = 0;  // of the first element, in elements
  DType dtype = DType::f32;
  Shape shape, strides;
  std::int64_t elements = 0;
  std::shared_ptr<Node> node;
};

Shape dense_strides(const Shape& shape);

// Dense, its elements yet to be written. Raises for a shape that has a negative size or is too large.
Tensor empty(const Shape& shape, DType dtype);
// The shape and dtype of x and the order of its dimensions in memory, without gaps: what is computed from a transposed
// x is then transposed back for free.
Tensor empty_like(const Tensor& x);
// The same with another shape of x's rank.
Tensor empty_in_order_of(const Tensor& x, const Shape& shape);
// A view of x's memory.
Tensor view_of(const Tensor& x, Shape shape, Shape strides, std::int64_t offset);
// x itself, or a dense copy off the tape.
Tensor dense(const Tensor& x);

// The elements of x, in x's own strides.
template <class T>
T* data_of(const Tensor& x) {
  return reinterpret_cast<T*>(x.impl()->storage->data()) + x.impl()->offset;
}

// Whether any of these would get a gradient from what is computed now.
bool on_tape(std::initializer_list<Tensor> inputs);

// Puts `y`, made from `inputs`, on the tape if one of them needs a gradient, and returns it. `backward` must not
// hold y itself, only y.detach(), or the node would keep itself alive.
Tensor record(const char* operation, Tensor y, const std::vector<Tensor>& inputs, Backward backward);
Tensor record_into(const char* operation, Tensor y, const Tensor& input, BackwardInto into);

// Whether nothing else shares the memory of `grad`, and no element of it repeats: it can be added to in place.
bool is_own(const Tensor& grad);

// x += y, for an x off the tape without repeats and a y that broadcasts to it.
void add_in_place(const Tensor& x, const Tensor& y);

int thread_count();

}  // namespace keel::nn
