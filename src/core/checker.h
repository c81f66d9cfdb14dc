#pragma once

#include <cmath>
#include <cstddef>
#include <initializer_list>
#include <memory_resource>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "core/layout.h"
#include "core/message.h"
#include "core/problem.h"

namespace keel {

// The checks behind Problem. Each raises "[operation] argument: expected …, got …". Memory is gathered on the
// way and compared at the end by check_memory().
class Checker {
 public:
  // All views must be on `device`.
  Checker(const char* operation, Pointers pointers, Device device)
      : operation_(operation), pointers_(pointers), device_(device) {
    memory_.reserve(kUsual);
  }

  template <class... Parts>
  [[noreturn]] void refuse(const Parts&... parts) const {
    throw Error(ErrorCode::invalid_argument, concat("[", operation_, "] ", parts...));
  }
  template <class... Parts>
  [[noreturn]] void refuse_dtype(const Parts&... parts) const {
    throw Error(ErrorCode::wrong_dtype, concat("[", operation_, "] ", parts...));
  }

  // Sizes, extent, alignment and pointer of a view that is read. The output called `in_place`, if there is one, may
  // be exactly this view.
  template <std::size_t Rank, class Pointer>
  void input(const char* name, const BasicView<Rank, Pointer>& view, const char* in_place = nullptr) {
    remember(name, view, device_, false).in_place = in_place;
  }

  // The same for a view that is written: its elements must not overlap. Dimensions with stride 0 are summed over if
  // `reduces` is set, and rejected otherwise.
  template <std::size_t Rank>
  void output(const char* name, const BasicView<Rank, void*>& view, bool reduces = false) {
    const Memory& memory = remember(name, view, device_, true);
    if (!has_distinct_elements(memory.layout, reduces)) {
      refuse(name, ": expected strides that keep elements apart, got ", text_of(view.strides), " for shape ",
             text_of(view.shape));
    }
  }

  template <std::size_t Rank, class Pointer>
  void shape(const char* name, const BasicView<Rank, Pointer>& view, const std::array<std::int64_t, Rank>& expected,
             const char* meaning) const {
    bool is_other = false;  // not by operator!=, whose call of memcmp waits for what the caller has just stored
    for (std::size_t i = 0; i < Rank; ++i) is_other |= view.shape[i] != expected[i];
    if (is_other) {
      refuse(name, ": expected shape ", meaning, " = ", text_of(expected), ", got ",
             view.given() ? text_of(view.shape) : "none");
    }
  }

  // Like shape(), with 1 allowed in any dimension; the view then gets the full size and stride 0 there.
  template <std::size_t Rank, class Pointer>
  void broadcast(const char* name, BasicView<Rank, Pointer>& view, const std::array<std::int64_t, Rank>& full,
                 const char* meaning) const {
    const auto given = view.shape;
    for (std::size_t i = 0; i < Rank; ++i) {
      if (given[i] != full[i] && given[i] != 1) {
        refuse(name, ": expected shape ", meaning, " = ", text_of(full), ", or 1 in any dimension, got ",
               text_of(given));
      }
      if (given[i] == 1) view.strides[i] = 0;
      view.shape[i] = full[i];
    }
  }

  template <std::size_t Rank, class Pointer>
  void dtype(const char* name, const BasicView<Rank, Pointer>& view, std::initializer_list<DType> allowed) const {
    std::string names;
    for (const DType dtype : allowed) {
      if (view.dtype == dtype) return;
      if (names.find(name_of(dtype)) == std::string::npos)
        names += (names.empty() ? "" : " or ") + std::string(name_of(dtype));
    }
    refuse_dtype(name, ": expected dtype ", names, ", got ", name_of(view.dtype));
  }

  template <std::size_t Rank, class Pointer>
  void floating(const char* name, const BasicView<Rank, Pointer>& view) const {
    if (!is_floating(view.dtype)) {
      refuse_dtype(name, ": expected dtype f64, f32, f16 or bf16, got ", name_of(view.dtype));
    }
  }

  // Lengths or offsets: their memory, which must be on the tensors' device or on the CPU.
  void list(const char* name, const ListView& values) {
    dtype(name, values, {DType::i64});
    if (values.data == nullptr) refuse(name, ": expected a pointer to ", values.size(), " values, got null");
    const Memory& memory = remember(name, values, values.device == Device{} ? values.device : device_, false);
    aligned(name, memory.layout, values.dtype);  // explain() reads them too
  }

  // A list that is written.
  template <class T>
  void written_list(const char* name, std::span<T> values) {
    const auto base = reinterpret_cast<std::uintptr_t>(values.data());
    memory_.push_back({.name = name,
                       .layout = {.base = base, .item = static_cast<std::int64_t>(values.size_bytes())},
                       .span = {base, values.size_bytes()},
                       .written = true});
  }

  // No output may share memory with another output or an input, except an input that it may replace.
  void check_memory() const;

 private:
  struct Memory {
    const char* name = nullptr;
    Layout layout{};
    Span span{};
    bool written = false;
    const char* in_place = nullptr;
  };

  // Checks a view's sizes, extent, alignment and pointer, and keeps where it is for check_memory(): views must outlive
  // the checker.
  template <std::size_t Rank, class Pointer>
  Memory& remember(const char* name, const BasicView<Rank, Pointer>& view, const Device& device, bool written) {
    if (view.device != device) {
      refuse(name, ": expected an array on ", text_of(device), " like the first tensor, got one on ",
             text_of(view.device));
    }
    for (const std::int64_t size : view.shape) {
      if (size < 0 || size > kMaxSize) {
        refuse(name, ": expected sizes from 0 to 2^40, got shape ", text_of(view.shape));
      }
    }
    if (size_of(view.dtype) == 0)
      refuse_dtype(name, ": expected a known dtype, got code ", static_cast<int>(view.dtype));
    const Layout layout = layout_of(view);
    const Extent extent = extent_of(layout);
    if (extent.count > kMaxElements) {
      refuse(name, ": expected at most 2^56 elements, got shape ", text_of(view.shape));
    }
    if (!extent.fits) {
      refuse(name, ": expected elements within 2^60 bytes, got shape ", text_of(view.shape), " with strides ",
             text_of(view.strides));
    }
    Memory& memory = memory_.emplace_back();  // filled where it stays: a copy would wait for each store
    memory.name = name;
    memory.layout = layout;
    memory.span = extent.span;
    memory.written = written;
    if (pointers_ == Pointers::ignored || extent.count == 0) return memory;
    if (view.data == nullptr) refuse(name, ": expected a pointer to data of shape ", text_of(view.shape), ", got null");
    aligned(name, layout, view.dtype);
    return memory;
  }

  void aligned(const char* name, const Layout& layout, DType dtype_of_view) const {
    const std::uintptr_t past = layout.base & static_cast<std::uintptr_t>(layout.item - 1);  // a power of two
    if (past == 0) return;
    refuse(name, ": expected data aligned to the ", layout.item, " bytes of ", name_of(dtype_of_view),
           ", got an address ", past, " bytes past that");
  }

  static constexpr std::int64_t kMaxSize = std::int64_t{1} << 40;
  static constexpr std::int64_t kMaxElements = std::int64_t{1} << 56;  // byte counts and products of sizes then fit

  // The arrays of a usual call need no allocation.
  static constexpr std::size_t kUsual = 12;
  alignas(std::max_align_t) std::byte room_[kUsual * sizeof(Memory) + 64];
  std::pmr::monotonic_buffer_resource pool_{room_, sizeof(room_)};

  const char* operation_;
  Pointers pointers_;
  Device device_;
  std::pmr::vector<Memory> memory_{&pool_};
};

}  // namespace keel
