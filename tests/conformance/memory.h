#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <type_traits>

namespace keel::conformance {

// Where an array lies.
enum class Placement {
  aligned,      // to a vector of any target, as the memory of large arrays often is
  shifted,      // one element past that
  before_page,  // it ends where a page begins that faults when touched
  after_page,   // it begins where such a page ends
};

// The memory of one array, painted. Aligned or shifted, nothing lies beside it under the address sanitizer, so that a
// read one past the end is seen, and a few guard bytes do elsewhere, so that a write is. Beside a page that faults both
// are, on one side.
class Memory {
 public:
  Memory() = default;
  Memory(std::size_t size, std::size_t item, Placement placement, unsigned char paint);

  bool exists() const { return allocation_ != nullptr; }
  unsigned char* begin() const { return begin_; }                // of the array
  std::span<unsigned char> reachable() const { return bytes_; }  // it and its guard bytes

 private:
  struct Free {
    std::size_t mapped;  // bytes; 0 for what operator new gave
    void operator()(unsigned char* allocation) const;
  };

  std::unique_ptr<unsigned char, Free> allocation_;
  std::span<unsigned char> bytes_;
  unsigned char* begin_ = nullptr;
};

// `count` values in memory of their own.
template <class T>
class Items {
 public:
  Items() = default;
  Items(std::size_t count, const T& value, Placement placement)
      : memory_(count * sizeof(T), sizeof(T), placement, 0), count_(count) {
    static_assert(std::is_trivially_destructible_v<T>);
    std::uninitialized_fill_n(reinterpret_cast<T*>(memory_.begin()), count, value);
  }
  std::span<T> span() const { return {reinterpret_cast<T*>(memory_.begin()), count_}; }

 private:
  Memory memory_;
  std::size_t count_ = 0;
};

}  // namespace keel::conformance
