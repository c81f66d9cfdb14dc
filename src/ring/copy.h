#pragma once

#include "keel/view.h"
#include "ring/geometry.h"

namespace keel::ring {

// A block of keys: the stretches `rows` of the whole, and k and v of each.
struct Block {
  Needs rows{};
  std::array<TensorView, 2> k{}, v{};
};

// Sizes that blocks of all ranks have in common.
struct BlockShape {
  std::int64_t batch = 0, heads = 0, d_k = 0, d_v = 0;
  DType dtype = DType::f32;

  std::int64_t row_bytes() const { return batch * heads * (d_k + d_v) * size_of(dtype); }
  std::int64_t bytes(const Needs& rows) const { return (rows[0].size() + rows[1].size()) * row_bytes(); }

  // The block that lies in memory as pack() leaves it: k, then v of each stretch.
  template <class Pointer>
  std::array<BasicView<4, Pointer>, 4> views(const Needs& rows, Pointer memory) const {
    std::array<BasicView<4, Pointer>, 4> all;
    using Byte = std::conditional_t<std::is_same_v<Pointer, void*>, std::byte, const std::byte>;
    auto* at = static_cast<Byte*>(memory);
    for (std::size_t x = 0; x < 4; ++x) {
      const std::array<std::int64_t, 4> shape = {batch, heads, rows[x / 2].size(), x % 2 == 0 ? d_k : d_v};
      all[x] = {at, dtype, shape, contiguous_strides(shape)};
      at += shape[0] * shape[1] * shape[2] * shape[3] * size_of(dtype);
    }
    return all;
  }
  Block block(const Needs& rows, const void* memory) const;
};

// Copies `rows` of a block that has at least those.
void pack(const BlockShape& shape, const Block& from, const Needs& rows, void* to, int threads);

// to = from, or to += from: of one shape, with elements rounded once where the dtypes differ.
void copy(const TensorView& from, const MutableTensorView& to, int threads);
void add(const TensorView& from, const MutableTensorView& to, int threads);

// A view of rank 3 or 1 as one of rank 4.
template <std::size_t Rank, class Pointer>
BasicView<4, Pointer> as_tensor(const BasicView<Rank, Pointer>& x) {
  BasicView<4, Pointer> y{x.data, x.dtype, {1, 1, 1, 1}, {}, x.device};
  for (std::size_t i = 0; i < Rank; ++i) {
    y.shape[i] = x.shape[i];
    y.strides[i] = x.strides[i];
  }
  return y;
}

// The same with dimensions of stride 0, which are summed over, taken once.
template <std::size_t Rank, class Pointer>
BasicView<Rank, Pointer> summed(BasicView<Rank, Pointer> x) {
  for (std::size_t i = 0; i < Rank; ++i) {
    if (x.strides[i] == 0 && x.shape[i] > 1) x.shape[i] = 1;
  }
  return x;
}

}  // namespace keel::ring
