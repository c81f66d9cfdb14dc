#pragma once

#include <cstddef>
#include <string_view>

namespace keel::lab::translate {

// Where the first byte lies that is not part of valid UTF-8 (overlong forms and surrogates are not); npos where all
// are.
std::size_t invalid_utf8(std::string_view text);

// Whether valid UTF-8 holds a control character other than a tab: a terminal could take it for a command.
bool has_control_character(std::string_view text);

// Characters in valid UTF-8, for columns of text.
std::size_t characters_in(std::string_view text);

}  // namespace keel::lab::translate
