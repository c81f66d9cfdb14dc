#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace keel::io {

// A shape as Python writes it: "(1, 8, 1024, 64)", "(3,)", "()".
std::string shape_text(std::span<const std::int64_t> shape);

// Text from a stranger, fit for one line of a message: unprintable bytes become \xNN, and what is long is cut.
std::string printable(std::string_view text, std::size_t longest = 60);

// A path or another text that somebody chose, likewise: control characters and what is not UTF-8 become \xNN, so that
// it can go to a terminal and into JSON; the rest stays, at any length.
std::string path_text(std::string_view path);

// Raises keel::Error (ErrorCode::bad_file): "[npy] q.npy: expected …, got …".
[[noreturn]] void raise_bad_file(std::string_view format, std::string_view path, std::string_view what);

}  // namespace keel::io
