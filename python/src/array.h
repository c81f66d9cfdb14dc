#pragma once

#include <nanobind/nanobind.h>

#include <array>
#include <cstdint>
#include <string>

#include "dlpack.h"
#include "keel/view.h"

namespace keel::python {

namespace nb = nanobind;

enum class Access { read, write };

// An argument's place, for its errors: "[attention] q: expected …, got …".
struct Place {
  const char* operation;
  const char* name;

  [[noreturn]] void type_error(const std::string& text) const;
  [[noreturn]] void value_error(const std::string& text) const;
};

// The memory of a Python array, borrowed for the duration of a call: a NumPy array (or any other buffer), a torch
// tensor, or anything else that supports DLPack. Nothing is copied.
class Array {
 public:
  static constexpr int kMaxRank = 8;

  Array() = default;
  // What another library is still writing is ordered before later work on `stream`, a cudaStream_t, by that library;
  // what is torch's must already be.
  Array(Place place, nb::handle object, Access access = Access::read, void* stream = nullptr);
  ~Array();
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;

  DType dtype() const { return dtype_; }
  Device device() const { return device_; }
  void* current_stream() const;  // of the array's library on its device; null for the default one
  int rank() const { return rank_; }
  std::int64_t size(int dimension) const { return shape_[dimension]; }

  // As a view of `Rank` dimensions; missing ones come first and have size 1.
  template <std::size_t Rank>
  BasicView<Rank, void*> view(int least = 0) const {
    check_rank(least, static_cast<int>(Rank));
    BasicView<Rank, void*> view{data_, dtype_, {}, {}, device_};
    const int missing = static_cast<int>(Rank) - rank_;
    for (int i = 0; i < static_cast<int>(Rank); ++i) {
      view.shape[i] = i < missing ? 1 : shape_[i - missing];
      view.strides[i] = i < missing ? 0 : strides_[i - missing];
    }
    return view;
  }

 private:
  bool borrow_by_exchange(nb::handle object);
  bool borrow_buffer(nb::handle object, Access access);
  bool borrow_capsule(nb::handle object, Access access, void* stream);
  void take(const dlpack::Tensor& tensor);
  template <class Size>
  void take(void* data, int rank, const Size* shape, const Size* strides);
  void check_rank(int least, int most) const;

  Place place_{"", ""};
  void* data_ = nullptr;
  DType dtype_ = DType::f32;
  Device device_{};
  const dlpack::Exchange* exchange_ = nullptr;  // where the library has one
  int rank_ = 0;
  std::array<std::int64_t, kMaxRank> shape_{}, strides_{};
  Py_buffer buffer_{};           // to be released if obj is set
  PyObject* capsule_ = nullptr;  // keeps borrowed memory alive
};

}  // namespace keel::python
