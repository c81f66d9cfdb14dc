#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "io/array.h"
#include "io/file.h"
#include "io/npy_header.h"

// NumPy's .npy files, versions 1.0 to 3.0, either byte order, C or Fortran order.
//
//   keel     f64  f32  f16  bf16  bool  i64
//   .npy     f8   f4   f2   V2    b1    i8, and i4 when read
//
// A file that does not match its header, or holds anything else, raises keel::Error (ErrorCode::bad_file, or
// ErrorCode::io when it cannot be opened or read): "[npy] q.npy: expected …, got …".
namespace keel::io {

Array read_npy(const std::string& path);

// The same for a file in memory; `path` is only for messages.
Array parse_npy(std::span<const std::byte> file, const std::string& path);

// Complete or not at all, see OutputFile.
void write_npy(const std::string& path, const Array& array, const NpyLayout& layout = {});

// For one of several files that should appear together; the caller calls commit().
void write_npy(OutputFile& file, const Array& array, const NpyLayout& layout = {});

}  // namespace keel::io
