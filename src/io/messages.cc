#include "io/messages.h"

#include <fmt/format.h>

#include "keel/error.h"

namespace keel::io {

std::string shape_text(std::span<const std::int64_t> shape) {
  std::string text = "(";
  for (std::size_t i = 0; i < shape.size(); ++i) text += fmt::format("{}{}", i > 0 ? ", " : "", shape[i]);
  return text + (shape.size() == 1 ? ",)" : ")");
}

std::string printable(std::string_view text, std::size_t longest) {
  std::string result;
  for (const char c : text.substr(0, longest)) {
    const auto byte = static_cast<unsigned char>(c);
    result += byte < 0x20 || byte >= 0x7F ? fmt::format("\\x{:02x}", byte) : std::string(1, c);
  }
  return text.size() > longest ? result + "..." : result;
}

std::string path_text(std::string_view path) {
  std::string result;
  for (const char c : path) {
    const auto byte = static_cast<unsigned char>(c);
    result += byte < 0x20 || byte == 0x7F ? fmt::format("\\x{:02x}", byte) : std::string(1, c);
  }
  return result;
}

void raise_bad_file(std::string_view format, std::string_view path, std::string_view what) {
  throw Error(ErrorCode::bad_file, fmt::format("[{}] {}: {}", format, path_text(path), what));
}

}  // namespace keel::io
