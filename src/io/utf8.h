#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace keel::io {

struct Character {
  std::size_t bytes = 0;  // 0: not valid
  std::uint32_t code = 0;
};

// The first character of `text`, which must not be empty.
[[nodiscard]] Character first_character(std::string_view text);

// Whether a terminal could take it for a command: C0, C1 (each an escape sequence in one character) and DEL.
[[nodiscard]] constexpr bool is_control(std::uint32_t code) noexcept {
  return code < 0x20 || (code >= 0x7f && code < 0xa0);
}

// The position of the first byte that is not part of valid UTF-8 (overlong forms and surrogates are not); npos if there
// is none.
[[nodiscard]] std::size_t invalid_utf8(std::string_view text);

// Whether valid UTF-8 holds a control character other than a tab.
[[nodiscard]] bool has_control_character(std::string_view text);

// Characters in valid UTF-8, for columns of text.
[[nodiscard]] std::size_t characters_in(std::string_view text);

}  // namespace keel::io
