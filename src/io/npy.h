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
// A file that is not all of what its header says, or holds anything else, raises keel::Error (ErrorCode::bad_file, or
// ErrorCode::io when it cannot be opened or read): "[npy] q.npy: expected …, got …".
namespace keel::io {

Array read_npy(const std::string& path);

// The same, of a file in memory; `path` is for messages alone.
Array parse_npy(std::span<const std::byte> file, const std::string& path);

// Whole or not at all, as OutputFile says.
void write_npy(const std::string& path, const Array& array, const NpyLayout& layout = {});

// For one of several files that are to appear together; commit() is the caller's.
void write_npy(OutputFile& file, const Array& array, const NpyLayout& layout = {});

}  // namespace keel::io
