#pragma once

#include <array>
#include <concepts>
#include <cstdint>
#include <span>
#include <type_traits>

#include "keel/dtype.h"

namespace keel {

// Where an array is stored. All arrays of a call are on one device, which computes it; only lengths and offsets may be
// on the CPU instead. Nothing is ever copied between devices.
enum class DeviceKind : std::int32_t {
  cpu = 0,
  cuda = 1,
  extension = 2,  // of a backend that the program provides
};
struct Device {
  DeviceKind kind = DeviceKind::cpu;
  std::int32_t index = 0;
  bool operator==(const Device&) const = default;
};

// A view of an array owned by someone else: pointer, dtype, shape, strides and device. Strides count elements, may be
// of any sign, and 0 repeats along a dimension, so BNHD layouts, packed QKV, slices and broadcasts need no copy. A view
// that is filled in by hand needs its strides too: left out, they are 0.
// A default-constructed view means "not given".
template <std::size_t Rank, class Pointer>
struct BasicView {
  Pointer data = nullptr;
  DType dtype = DType::f32;
  std::array<std::int64_t, Rank> shape{};
  std::array<std::int64_t, Rank> strides{};
  Device device{};

  [[nodiscard]] bool given() const noexcept {
    std::int64_t sizes = 0;
    for (const std::int64_t n : shape) sizes |= n;
    return data != nullptr || sizes != 0;
  }

  operator BasicView<Rank, const void*>() const noexcept requires std::is_same_v<Pointer, void*> {
    return {data, dtype, shape, strides, device};
  }
};

using TensorView = BasicView<4, const void*>;  // (B, H, N, D); masks and weights: (B, H, N_q, N_k)
using MutableTensorView = BasicView<4, void*>;
using RowView = BasicView<3, const void*>;  // one value per row: (B, H, N_q)
using MutableRowView = BasicView<3, void*>;
using TableView = BasicView<2, const void*>;  // one row per query head: (H, …)
using MutableTableView = BasicView<2, void*>;
using HeadView = BasicView<1, const void*>;  // one value per query head: (H)
using MutableHeadView = BasicView<1, void*>;

// One value per query head, (H), or one per batch entry and query head, (B, H).
struct SlopeView : BasicView<2, const void*> {
  SlopeView() = default;
  template <class Pointer>
  SlopeView(const BasicView<2, Pointer>& view) : BasicView(view) {}
  template <class Pointer>
  SlopeView(const BasicView<1, Pointer>& view)
      : BasicView{view.data, view.dtype, {view.given() ? 1 : 0, view.shape[0]}, {0, view.strides[0]}, view.device} {}
};

// Lengths or offsets, i64: from a vector, an array or a span, or from a view of memory on a device.
struct ListView : BasicView<1, const void*> {
  ListView() = default;
  ListView(const BasicView<1, const void*>& view) : BasicView(view) {}
  ListView(const std::int64_t* values, std::size_t count)
      : BasicView{values, DType::i64, {static_cast<std::int64_t>(count)}, {1}} {}
  ListView(std::convertible_to<std::span<const std::int64_t>> auto const& values)
      : ListView(std::span<const std::int64_t>(values).data(), std::span<const std::int64_t>(values).size()) {}

  [[nodiscard]] constexpr bool empty() const noexcept { return shape[0] == 0; }
  [[nodiscard]] constexpr std::int64_t size() const noexcept { return shape[0]; }
  constexpr std::int64_t operator[](std::int64_t i) const noexcept {  // only where the list is stored
    return static_cast<const std::int64_t*>(data)[i * strides[0]];
  }
};

// Strides, in elements, of a contiguous C-order array.
template <std::size_t Rank>
[[nodiscard]] constexpr std::array<std::int64_t, Rank> contiguous_strides(
    const std::array<std::int64_t, Rank>& shape) noexcept {
  std::array<std::int64_t, Rank> strides{};
  std::int64_t step = 1;
  for (std::size_t i = Rank; i-- > 0;) {
    strides[i] = step;
    if (__builtin_mul_overflow(step, shape[i], &step)) step = INT64_MAX;  // every call rejects such a shape
  }
  return strides;
}

// A view of a contiguous C-order array: view(q.data(), {B, H, N, D}).
template <class T>
[[nodiscard]] auto view(T* data, const std::array<std::int64_t, 4>& shape) noexcept {
  using Pointer = std::conditional_t<std::is_const_v<T>, const void*, void*>;
  return BasicView<4, Pointer>{data, dtype_of<std::remove_const_t<T>>, shape, contiguous_strides(shape)};
}
template <class T>
[[nodiscard]] auto row_view(T* data, const std::array<std::int64_t, 3>& shape) noexcept {
  using Pointer = std::conditional_t<std::is_const_v<T>, const void*, void*>;
  return BasicView<3, Pointer>{data, dtype_of<std::remove_const_t<T>>, shape, contiguous_strides(shape)};
}
template <class T>
[[nodiscard]] auto table_view(T* data, const std::array<std::int64_t, 2>& shape) noexcept {
  using Pointer = std::conditional_t<std::is_const_v<T>, const void*, void*>;
  return BasicView<2, Pointer>{data, dtype_of<std::remove_const_t<T>>, shape, contiguous_strides(shape)};
}
template <class T>
[[nodiscard]] auto head_view(T* data, std::int64_t heads) noexcept {
  using Pointer = std::conditional_t<std::is_const_v<T>, const void*, void*>;
  return BasicView<1, Pointer>{data, dtype_of<std::remove_const_t<T>>, {heads}, {1}};
}

}  // namespace keel
