#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace keel::io {

// Tells one content from another, for noticing that a file changed (FNV-1a, 64 bits). Not against a forger.
class Digest {
 public:
  void add(std::span<const std::byte> bytes) {
    for (const std::byte b : bytes) hash_ = (hash_ ^ std::to_integer<std::uint64_t>(b)) * 0x100000001B3;
  }
  std::string text() const;  // 16 hexadecimal digits

 private:
  std::uint64_t hash_ = 0xCBF29CE484222325;
};

// That of a file's bytes; nothing for a pipe or a device, which can be read but once. Raises keel::Error
// (ErrorCode::io).
std::optional<std::string> file_digest(const std::string& path);

}  // namespace keel::io
