#pragma once

#include <string>
#include <string_view>

namespace keel::cli {

// Bold on a terminal that shows it; plain in a file, a pipe, or if NO_COLOR is set.
std::string bold(std::string_view text);

// A file's path, on such a terminal as a link to it.
std::string linked(const std::string& path);

// Breaks at spaces into lines of at most `width` characters; every line but the first is indented.
std::string wrapped(std::string_view text, std::size_t width, std::size_t indent);

// "1.23 s", "45.6 ms", "7.89 µs"
std::string duration_text(double seconds);

// "48 KiB", "2 MiB"
std::string bytes_text(long long bytes);

}  // namespace keel::cli
