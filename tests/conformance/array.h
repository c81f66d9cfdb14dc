#pragma once

#include <cstddef>
#include <string>

#include "conformance/memory.h"
#include "keel/view.h"

namespace keel::conformance {

// The memory of one view, and no more. All bytes start as `paint`, and outside_writes() tells whether those that are no
// element of the view still are.
class Array {
 public:
  static constexpr unsigned char kNan = 0xFF;   // paint for inputs: a gap that is read as data gives NaN
  static constexpr unsigned char kMark = 0xFB;  // paint for outputs: finite, huge and negative as any float

  Array() = default;

  Array(DType dtype, const std::array<std::int64_t, 4>& shape, const std::array<std::int64_t, 4>& strides,
        unsigned char paint, Placement placement);

  template <std::size_t Rank>
  static Array of_shape(DType dtype, const std::array<std::int64_t, Rank>& shape, unsigned char paint,
                        Placement placement) {
    return with_strides<Rank>(dtype, shape, contiguous_strides(shape), paint, placement);
  }
  template <std::size_t Rank>
  static Array with_strides(DType dtype, const std::array<std::int64_t, Rank>& shape,
                            const std::array<std::int64_t, Rank>& strides, unsigned char paint, Placement placement) {
    std::array<std::int64_t, 4> shape4{1, 1, 1, 1}, strides4{};
    for (std::size_t i = 0; i < Rank; ++i) {
      shape4[i] = shape[i];
      strides4[i] = strides[i];
    }
    return Array(dtype, shape4, strides4, paint, placement);
  }

  bool exists() const { return memory_.exists(); }
  void* data() const { return first_; }
  DType dtype() const { return dtype_; }
  const std::array<std::int64_t, 4>& shape() const { return shape_; }

  MutableTensorView tensor() const { return {first_, dtype_, shape_, strides_}; }
  MutableRowView rows() const {
    return {first_, dtype_, {shape_[0], shape_[1], shape_[2]}, {strides_[0], strides_[1], strides_[2]}};
  }
  MutableTableView table() const { return {first_, dtype_, {shape_[0], shape_[1]}, {strides_[0], strides_[1]}}; }
  MutableHeadView heads() const { return {first_, dtype_, {shape_[0]}, {strides_[0]}}; }

  // The views, or ones that are not given where the array does not exist.
  MutableTensorView tensor_or_none() const { return exists() ? tensor() : MutableTensorView{}; }
  MutableRowView rows_or_none() const { return exists() ? rows() : MutableRowView{}; }
  MutableTableView table_or_none() const { return exists() ? table() : MutableTableView{}; }
  MutableHeadView heads_or_none() const { return exists() ? heads() : MutableHeadView{}; }

  // Calls set(value, b, h, n, d) → new value for each element; dimensions of stride 0 are visited once.
  template <class Make>
  void fill(Make make) {
    const auto count = [this](int i) { return strides_[i] == 0 && shape_[i] > 1 ? 1 : shape_[i]; };
    for (std::int64_t b = 0; b < count(0); ++b) {
      for (std::int64_t h = 0; h < count(1); ++h) {
        for (std::int64_t n = 0; n < count(2); ++n) {
          for (std::int64_t d = 0; d < count(3); ++d) {
            put(b * strides_[0] + h * strides_[1] + n * strides_[2] + d * strides_[3], make(b, h, n, d));
          }
        }
      }
    }
  }

  double get(std::int64_t b, std::int64_t h = 0, std::int64_t n = 0, std::int64_t d = 0) const;
  void set(double value, std::int64_t b, std::int64_t h = 0, std::int64_t n = 0, std::int64_t d = 0) {
    put(b * strides_[0] + h * strides_[1] + n * strides_[2] + d * strides_[3], value);
  }

  // Every byte, for comparing two calls to the last bit.
  std::string contents() const {
    const auto bytes = memory_.reachable();
    return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }

  // "" or which byte outside the view's elements was written.
  std::string outside_writes() const;

 private:
  void put(std::int64_t offset, double value);

  DType dtype_ = DType::f32;
  unsigned char paint_ = 0;
  std::array<std::int64_t, 4> shape_{}, strides_{};
  Memory memory_;
  unsigned char* first_ = nullptr;  // the element of index 0
};

}  // namespace keel::conformance
