#include "conformance/array.h"

#include <vector>

#include "core/element.h"

namespace keel::conformance {

Array::Array(DType dtype, const std::array<std::int64_t, 4>& shape, const std::array<std::int64_t, 4>& strides,
             unsigned char paint, Placement placement)
    : dtype_(dtype), paint_(paint), shape_(shape), strides_(strides) {
  const std::int64_t item = size_of(dtype);
  std::int64_t below = 0, above = 0;
  bool empty = false;
  for (int i = 0; i < 4; ++i) {
    if (shape[i] == 0) empty = true;
    (strides[i] < 0 ? below : above) += strides[i] * (shape[i] - 1);
  }
  memory_ = Memory(static_cast<std::size_t>(empty ? 0 : (above - below + 1) * item), static_cast<std::size_t>(item),
                   placement, paint);
  first_ = memory_.begin() + (empty ? 0 : -below * item);
}

double Array::get(std::int64_t b, std::int64_t h, std::int64_t n, std::int64_t d) const {
  return load(first_, dtype_, b * strides_[0] + h * strides_[1] + n * strides_[2] + d * strides_[3]);
}

void Array::put(std::int64_t offset, double value) { store(first_, dtype_, offset, value); }

std::string Array::outside_writes() const {
  const std::span<const unsigned char> bytes = memory_.reachable();
  std::vector<bool> element(bytes.size(), false);
  const std::int64_t item = size_of(dtype_);
  const std::int64_t start = first_ - bytes.data();
  for (std::int64_t b = 0; b < shape_[0]; ++b) {
    for (std::int64_t h = 0; h < shape_[1]; ++h) {
      for (std::int64_t n = 0; n < shape_[2]; ++n) {
        for (std::int64_t d = 0; d < shape_[3]; ++d) {
          const std::int64_t at =
              start + item * (b * strides_[0] + h * strides_[1] + n * strides_[2] + d * strides_[3]);
          for (std::int64_t i = 0; i < item; ++i) element[static_cast<std::size_t>(at + i)] = true;
        }
      }
    }
  }
  for (std::size_t at = 0; at < bytes.size(); ++at) {
    if (!element[at] && bytes[at] != paint_) {
      return "wrote outside its elements, " + std::to_string(static_cast<std::int64_t>(at) - start) +
             " bytes from the first";
    }
  }
  return {};
}

}  // namespace keel::conformance
