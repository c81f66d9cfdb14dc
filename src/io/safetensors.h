#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "io/array.h"
#include "io/file.h"

// .safetensors files:
//
//   length of the header (8 bytes, little-endian)   header   data
//
// The header is JSON, {"name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [begin, end]}, …}, offsets counting
// from the start of the data, which they cover without gaps or overlaps; "__metadata__" may hold texts.
//
//   keel          f64  f32  f16  bf16  bool  i64
//   .safetensors  F64  F32  F16  BF16  BOOL  I64
//
// A file that is anything else raises keel::Error (ErrorCode::bad_file, or ErrorCode::io when it cannot be opened or
// read): "[safetensors] model.safetensors: expected …, got …".
namespace keel::io {

struct Safetensors {
  std::vector<std::pair<std::string, Array>> tensors{};  // in the order of their data
  std::map<std::string, std::string> metadata{};
};

Safetensors read_safetensors(const std::string& path);

// The same for a file in memory; `path` is only for messages.
Safetensors parse_safetensors(std::span<const std::byte> file, const std::string& path);

// Complete or not at all, see OutputFile. Wider elements come first, so that all are aligned in the file; otherwise
// the order is kept. Raises (ErrorCode::invalid_argument) for a name that occurs twice or is not UTF-8.
void write_safetensors(const std::string& path, const Safetensors& content);

}  // namespace keel::io
