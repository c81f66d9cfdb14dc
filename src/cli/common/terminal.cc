#include "cli/common/terminal.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>

namespace keel::cli {

namespace {

bool is_plain() {
  const char* no_color = std::getenv("NO_COLOR");
  const char* terminal = std::getenv("TERM");
  return (no_color != nullptr && *no_color != '\0') || terminal == nullptr || std::string_view(terminal) == "dumb" ||
         ::isatty(STDOUT_FILENO) == 0;
}

}  // namespace

std::string bold(std::string_view text) {
  return is_plain() ? std::string(text) : fmt::format("\x1b[1m{}\x1b[0m", text);
}

std::string linked(const std::string& path) {
  std::error_code error;
  const std::string whole = std::filesystem::absolute(path, error).string();
  if (is_plain() || error) return path;
  std::string address = "file://";
  for (const char c : whole) {
    const auto byte = static_cast<unsigned char>(c);
    const bool kept = std::isalnum(byte) != 0 || std::string_view("/._-~").find(c) != std::string_view::npos;
    address += kept ? std::string(1, c) : fmt::format("%{:02X}", byte);
  }
  return fmt::format("\x1b]8;;{}\x1b\\{}\x1b]8;;\x1b\\", address, path);
}

std::string wrapped(std::string_view text, std::size_t width, std::size_t indent) {
  std::string lines;
  std::size_t column = 0;  // in characters: continuation bytes of UTF-8 have none
  while (!text.empty()) {
    const std::string_view word = text.substr(0, text.find(' '));
    text.remove_prefix(std::min(word.size() + 1, text.size()));
    const auto length = static_cast<std::size_t>(
        std::count_if(word.begin(), word.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
    if (column > 0 && column + 1 + length > width) {
      lines.append("\n").append(indent, ' ');
      column = 0;
    } else if (column > 0) {
      lines += ' ';
      ++column;
    }
    lines += word;
    column += length;
  }
  return lines;
}

std::string duration_text(double seconds) {
  if (seconds >= 1.0) return fmt::format("{:.2f} s", seconds);
  if (seconds >= 1e-3) return fmt::format("{:.2f} ms", seconds * 1e3);
  return fmt::format("{:.1f} µs", seconds * 1e6);
}

std::string bytes_text(long long bytes) {
  if (bytes >= 1 << 20) return fmt::format("{:.4g} MiB", static_cast<double>(bytes) / (1 << 20));
  if (bytes >= 1 << 10) return fmt::format("{:.4g} KiB", static_cast<double>(bytes) / (1 << 10));
  return fmt::format("{} bytes", bytes);
}

}  // namespace keel::cli
