#include "io/messages.h"

#include <fmt/format.h>

#include <algorithm>

#include "io/utf8.h"
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
  while (!path.empty()) {
    const Character c = first_character(path);
    const std::string_view bytes = path.substr(0, std::max<std::size_t>(c.bytes, 1));
    if (c.bytes > 0 && !is_control(c.code)) {
      result += bytes;
    } else {
      for (const char byte : bytes) result += fmt::format("\\x{:02x}", static_cast<unsigned char>(byte));
    }
    path.remove_prefix(bytes.size());
  }
  return result;
}

void raise_bad_file(std::string_view format, std::string_view path, std::string_view what) {
  throw Error(ErrorCode::bad_file, fmt::format("[{}] {}: {}", format, path_text(path), what));
}

}  // namespace keel::io
