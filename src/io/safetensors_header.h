#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "keel/dtype.h"

namespace keel::io {

struct SafetensorsEntry {
  std::string name;
  DType dtype = DType::f32;
  std::vector<std::int64_t> shape;
  std::uint64_t bytes = 0;
};

struct SafetensorsHeader {
  std::vector<SafetensorsEntry> entries;  // in the order of their data, which they cover without gaps
  std::map<std::string, std::string> metadata;
  std::uint64_t data_bytes = 0;  // that follow the header
};

inline constexpr std::size_t kSafetensorsPrefix = 8;

// How many bytes the header takes, from the first 8 of the file (fewer when it is shorter). Raises keel::Error if
// that is more than any set of tensors needs.
std::uint64_t safetensors_header_size(std::string_view start, const std::string& path);

// Reads the header. In each entry, shape has no negative size and at most 32 dimensions, and its product,
// zeros counted as ones, times the element's size fits in an int64.
SafetensorsHeader parse_safetensors_header(std::string_view text, const std::string& path);

// The start of a file of these entries, length included, padded to a multiple of 8.
std::string make_safetensors_header(const std::vector<SafetensorsEntry>& entries,
                                    const std::map<std::string, std::string>& metadata, const std::string& path);

}  // namespace keel::io
