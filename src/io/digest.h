#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "core/hash.h"

namespace keel::io {

// Identifies content, to notice that a file changed (FNV-1a, 64 bits). Not secure against forgery.
class Digest {
 public:
  void add(std::span<const std::byte> bytes) {
    for (const std::byte b : bytes) hash_ = hash_byte(hash_, std::to_integer<std::uint64_t>(b));
  }
  std::string text() const;  // 16 hexadecimal digits

 private:
  std::uint64_t hash_ = kHashStart;
};

// The digest of a file's bytes; nothing for a pipe or a device, which can be read only once. Raises keel::Error
// (ErrorCode::io).
[[nodiscard]] std::optional<std::string> file_digest(const std::string& path);

}  // namespace keel::io
