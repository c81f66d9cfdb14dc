#pragma once

#include <cstdint>
#include <string_view>

namespace keel {

// FNV-1a, 64 bits; `hash` continues an earlier one.
inline constexpr std::uint64_t kHashStart = 0xCBF29CE484222325;
[[nodiscard]] constexpr std::uint64_t hash_byte(std::uint64_t hash, std::uint64_t byte) noexcept {
  return (hash ^ byte) * 0x100000001B3;
}
[[nodiscard]] constexpr std::uint64_t hash_text(std::string_view text, std::uint64_t hash = kHashStart) noexcept {
  for (const char c : text) hash = hash_byte(hash, static_cast<unsigned char>(c));
  return hash;
}

}  // namespace keel
