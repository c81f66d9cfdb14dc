#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>
#include <span>
#include <utility>
#include <vector>

#include "keel/dtype.h"

namespace keel::io {

// Starts blocks at a cache line, and leaves new bytes uninitialised: they are about to be read from a file.
template <class T>
struct BlockAllocator {
  static constexpr std::align_val_t kAlignment{64};
  using value_type = T;

  BlockAllocator() = default;
  template <class U>
  BlockAllocator(const BlockAllocator<U>&) {}

  T* allocate(std::size_t count) { return static_cast<T*>(::operator new(count * sizeof(T), kAlignment)); }
  void deallocate(T* block, std::size_t) { ::operator delete(block, kAlignment); }

  template <class U>
  void construct(U* place) {
    ::new (static_cast<void*>(place)) U;
  }
  template <class U, class... Arguments>
  void construct(U* place, Arguments&&... arguments) {
    ::new (static_cast<void*>(place)) U(std::forward<Arguments>(arguments)...);
  }

  bool operator==(const BlockAllocator&) const { return true; }
};

using Buffer = std::vector<std::byte, BlockAllocator<std::byte>>;

// An array in memory: C order, no gaps, this machine's byte order.
struct Array {
  DType dtype = DType::f32;
  std::vector<std::int64_t> shape;  // empty: a single value
  Buffer bytes;

  std::int64_t elements() const {
    std::int64_t count = 1;
    for (const std::int64_t size : shape) count *= size;
    return count;
  }

  // The elements as T, which must be the type of `dtype`.
  template <class T>
  std::span<T> as() {
    return {reinterpret_cast<T*>(bytes.data()), bytes.size() / sizeof(T)};
  }
  template <class T>
  std::span<const T> as() const {
    return {reinterpret_cast<const T*>(bytes.data()), bytes.size() / sizeof(T)};
  }
};

// An array whose elements are yet to be written. The product of `shape` must fit.
inline Array make_array(DType dtype, std::vector<std::int64_t> shape) {
  Array array{.dtype = dtype, .shape = std::move(shape), .bytes = {}};
  array.bytes.resize(static_cast<std::size_t>(array.elements() * size_of(dtype)));
  return array;
}

template <class T>
Array make_array(std::vector<std::int64_t> shape, std::span<const T> elements) {
  Array array = make_array(dtype_of<T>, std::move(shape));
  if (!elements.empty()) std::memcpy(array.bytes.data(), elements.data(), elements.size_bytes());
  return array;
}

}  // namespace keel::io
