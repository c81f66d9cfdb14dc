#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "keel/dtype.h"

// The start of a .npy file (numpy.lib.format):
//
//   "\x93NUMPY"  major minor  length of the dictionary (2 bytes; from version 2 on, 4)  dictionary  data
//
// and the dictionary is a Python literal: {'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }
namespace keel::io {

// How elements are stored in the file.
struct NpyLayout {
  int version = 1;  // 1, 2 or 3
  bool big_endian = false;
  bool fortran_order = false;
};

struct NpyHeader {
  DType dtype = DType::f32;  // of the array in memory
  NpyLayout layout;
  bool narrow = false;  // i64 stored as 4-byte integers
  std::vector<std::int64_t> shape;
  std::uint64_t data_bytes = 0;  // that follow the header
};

// How many bytes come before the dictionary: the size of what npy_header_size() reads.
inline constexpr std::size_t kNpyPrefix = 12;

// How many bytes come before the data, from the first kNpyPrefix bytes of the file (fewer when the file is shorter).
// Raises keel::Error if this is not a .npy file, or its header is longer than any array needs.
std::size_t npy_header_size(std::span<const std::byte> start, const std::string& path);

// Reads the header; `bytes` is everything before the data, and `path` is only for messages. In the result, shape has no
// negative size and at most 32 dimensions, and its product, zeros counted as ones, times the element's
// size fits in an int64, so that strides can be computed.
NpyHeader parse_npy_header(std::span<const std::byte> bytes, const std::string& path);

// The header of an array to be written, padded so that the data starts at a multiple of 64 bytes.
std::string make_npy_header(DType dtype, std::span<const std::int64_t> shape, const NpyLayout& layout);

}  // namespace keel::io
