#include "cli/tensors.h"

#include <fmt/format.h>

#include <algorithm>

#include "io/messages.h"
#include "keel/error.h"

namespace keel::cli {
namespace {

[[noreturn]] void refuse(const std::string& name, const std::string& expected, const std::vector<std::int64_t>& shape) {
  throw Error(ErrorCode::invalid_argument, fmt::format("[attention] {}: expected {}, got shape {}", io::path_text(name),
                                                       expected, io::shape_text(shape)));
}

template <int Rank>
BasicView<Rank, const void*> of(const io::Array& array, const std::string& path) {
  BasicView<Rank, const void*> view = described<Rank>(array.dtype, array.shape, path);
  view.data = array.bytes.data();
  return view;
}

}  // namespace

TensorView tensor_view(const io::Array& array, const std::string& path) {
  const std::size_t rank = array.shape.size();
  if (rank < 2 || rank > 4) refuse(path, "2, 3 or 4 dimensions", array.shape);
  return of<4>(array, path);
}

RowView row_view(const io::Array& array, const std::string& path) {
  const std::size_t rank = array.shape.size();
  if (rank != 1 && rank != 3) refuse(path, "1 dimension (H) or 3 dimensions (B, H, N_q)", array.shape);
  if (rank == 3) return of<3>(array, path);
  return {array.bytes.data(), array.dtype, {1, array.shape[0], 1}, {0, 1, 0}};
}

HeadView head_view(const io::Array& array, const std::string& path) {
  if (array.shape.size() != 1) refuse(path, "1 dimension (H)", array.shape);
  return of<1>(array, path);
}

SlopeView slope_view(const io::Array& array, const std::string& path) {
  if (array.shape.size() == 2) return of<2>(array, path);
  if (array.shape.size() != 1) refuse(path, "1 dimension (H) or 2 dimensions (B, H)", array.shape);
  return of<1>(array, path);
}

template <int Rank>
BasicView<Rank, void*> described(DType dtype, const std::vector<std::int64_t>& shape, const std::string& name) {
  BasicView<Rank, void*> view;
  view.dtype = dtype;
  view.shape.fill(1);
  std::copy(shape.begin(), shape.end(), view.shape.end() - static_cast<std::ptrdiff_t>(shape.size()));
  std::int64_t bytes = size_of(dtype);
  for (const std::int64_t size : view.shape) {
    if (__builtin_mul_overflow(bytes, std::max<std::int64_t>(size, 1), &bytes)) {
      refuse(name, "an array that memory can hold", shape);
    }
  }
  view.strides = contiguous_strides(view.shape);
  return view;
}

template BasicView<4, void*> described<4>(DType, const std::vector<std::int64_t>&, const std::string&);
template BasicView<3, void*> described<3>(DType, const std::vector<std::int64_t>&, const std::string&);
template BasicView<2, void*> described<2>(DType, const std::vector<std::int64_t>&, const std::string&);
template BasicView<1, void*> described<1>(DType, const std::vector<std::int64_t>&, const std::string&);

}  // namespace keel::cli
