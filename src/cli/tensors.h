#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "io/array.h"
#include "keel/view.h"

// Arrays from files as the views that keel::attention() takes. What does not fit raises keel::Error, naming the file.
namespace keel::cli {

// (N, D), (H, N, D) or (B, H, N, D): missing dimensions in front are 1.
TensorView tensor_view(const io::Array& array, const std::string& path);

// (H), one value per head, or (B, H, N_q).
RowView row_view(const io::Array& array, const std::string& path);

// (H)
HeadView head_view(const io::Array& array, const std::string& path);

// (H) or (B, H)
SlopeView slope_view(const io::Array& array, const std::string& path);

// A view of a shape without memory, for describing a call. Raises keel::Error if its size does not fit in 63 bits.
// `shape` has at most Rank sizes; missing ones in front are 1.
template <int Rank>
BasicView<Rank, void*> described(DType dtype, const std::vector<std::int64_t>& shape, const std::string& name);

}  // namespace keel::cli
