#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace keel::io {

// A shape as Python writes it: "(1, 8, 1024, 64)", "(3,)", "()".
[[nodiscard]] std::string shape_text(std::span<const std::int64_t> shape);

// Untrusted text, made fit for one line of a message: unprintable bytes become \xNN, and long text is cut.
[[nodiscard]] std::string printable(std::string_view text, std::size_t longest = 60);

// A path or other user-chosen text, likewise: control characters and what is not UTF-8 become \xNN, so that
// it can go to a terminal and into JSON; the rest stays, at any length.
[[nodiscard]] std::string path_text(std::string_view path);

// Raises keel::Error (ErrorCode::bad_file): "[npy] q.npy: expected …, got …".
[[noreturn]] void raise_bad_file(std::string_view format, std::string_view path, std::string_view what);
[[noreturn]] inline void raise_bad_npy(std::string_view path, std::string_view what) {
  raise_bad_file("npy", path, what);
}
[[noreturn]] inline void raise_bad_safetensors(std::string_view path, std::string_view what) {
  raise_bad_file("safetensors", path, what);
}

// Of an array in a file.
inline constexpr std::size_t kMostDimensions = 32;

}  // namespace keel::io
