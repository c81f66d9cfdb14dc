#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace keel::io {

// What a message offers instead of a rejected dtype.
inline constexpr std::string_view kNpyDtypes = "f64, f32, f16, bf16, bool or i64";

// The dictionary of a .npy header: {'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }
struct NpyDictionary {
  std::string descr;
  bool fortran_order = false;
  std::vector<std::int64_t> shape;  // at most 32 sizes, none negative
};

// Reads this Python literal and no other: each key once, in any order, and nothing else. Raises keel::Error
// (ErrorCode::bad_file); `path` is only for messages.
NpyDictionary parse_npy_dictionary(std::string_view text, const std::string& path);

}  // namespace keel::io
