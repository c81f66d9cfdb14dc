#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>

#include "core/message.h"

// Structures of the C interface that begin with their size. 0 is the default of every field, so one from a program with
// an older header, which is shorter, is read as if followed by 0; and one from a program with a newer header is
// accepted if everything it adds is 0.
namespace keel {

constexpr std::uint64_t kMaxStructure = 4096;  // a larger size was never set: no version has it

// The structure at `from`, which the program calls `name`; `first` is the size of its first version.
template <class T>
T read_sized(const void* from, std::uint64_t first, const char* operation, const std::string& name) {
  std::uint64_t size = 0;
  std::memcpy(&size, from, sizeof(size));
  if (size < first || size > kMaxStructure) {
    throw Error(ErrorCode::invalid_argument, concat("[", operation, "] ", name, ".size: expected its sizeof, from ",
                                                    first, " to ", kMaxStructure, ", got ", size));
  }
  const auto* const bytes = static_cast<const unsigned char*>(from);
  for (std::uint64_t i = sizeof(T); i < size; ++i) {
    if (bytes[i] == 0) continue;
    throw Error(ErrorCode::invalid_argument,
                concat("[", operation, "] ", name, ".size: expected ", sizeof(T), ", or 0 in the fields beyond, which",
                       " this version does not know, got ", size, " with a field at byte ", i));
  }
  T result{};
  std::memcpy(&result, from, std::min<std::uint64_t>(size, sizeof(T)));
  return result;
}

}  // namespace keel
