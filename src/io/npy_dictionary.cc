#include "io/npy_dictionary.h"

#include <fmt/format.h>

#include <charconv>
#include <optional>
#include <utility>

#include "io/messages.h"

namespace keel::io {
namespace {

class Parser {
 public:
  Parser(std::string_view text, const std::string& path) : text_(text), path_(path) {}

  NpyDictionary parse() {
    std::optional<std::string> descr;
    std::optional<bool> fortran_order;
    std::optional<std::vector<std::int64_t>> shape;
    expect('{');
    while (!accept('}')) {
      const std::string key = string("a key in quotes");
      expect(':');
      if (key == "descr") {
        once(key, descr.has_value());
        if (next() == '[') raise_bad_npy(path_, fmt::format("expected dtype {}, got a structured dtype", kNpyDtypes));
        descr = string("the dtype in quotes");
      } else if (key == "fortran_order") {
        once(key, fortran_order.has_value());
        fortran_order = boolean();
      } else if (key == "shape") {
        once(key, shape.has_value());
        shape = tuple();
      } else {
        raise_bad_npy(path_, fmt::format("expected the keys descr, fortran_order and shape, got '{}'", printable(key)));
      }
      if (!accept(',') && next() != '}') unexpected("',' or '}'");
    }
    next();
    if (at_ != text_.size()) unexpected("nothing after '}'");
    require("descr", descr.has_value());
    require("fortran_order", fortran_order.has_value());
    require("shape", shape.has_value());
    return {.descr = std::move(*descr), .fortran_order = *fortran_order, .shape = std::move(*shape)};
  }

 private:
  // The next character that is not a space, '\0' at the end.
  char next() {
    while (at_ < text_.size() && std::string_view(" \t\n\r").find(text_[at_]) != std::string_view::npos) ++at_;
    return at_ < text_.size() ? text_[at_] : '\0';
  }

  [[noreturn]] void unexpected(std::string_view expected) {
    const std::string got = at_ < text_.size() ? fmt::format("'{}'", printable(text_.substr(at_, 1))) : "its end";
    raise_bad_npy(path_, fmt::format("expected {} at byte {} of the header's dictionary, got {}", expected, at_, got));
  }

  bool accept(char c) {
    if (next() != c || at_ == text_.size()) return false;
    ++at_;
    return true;
  }

  void expect(char c) {
    if (!accept(c)) unexpected(fmt::format("'{}'", c));
  }

  void once(const std::string& key, bool seen) {
    if (seen) raise_bad_npy(path_, fmt::format("expected the key {} once, got it twice", key));
  }

  void require(std::string_view key, bool seen) {
    if (!seen) raise_bad_npy(path_, fmt::format("expected the key {} in the header, got none", key));
  }

  std::string string(std::string_view expected) {
    const char quote = next();
    if (quote != '\'' && quote != '"') unexpected(expected);
    const std::size_t start = ++at_;
    while (at_ < text_.size() && text_[at_] != quote && text_[at_] != '\\' && text_[at_] != '\n') ++at_;
    if (at_ == text_.size() || text_[at_] != quote) unexpected("the closing quote");
    return std::string(text_.substr(start, at_++ - start));
  }

  bool boolean() {
    next();
    for (const auto& [word, value] : {std::pair("True", true), std::pair("False", false)}) {
      if (!text_.substr(at_).starts_with(word)) continue;
      at_ += std::string_view(word).size();
      return value;
    }
    unexpected("True or False");
  }

  std::vector<std::int64_t> tuple() {
    std::vector<std::int64_t> sizes;
    expect('(');
    bool comma = true;
    while (!accept(')')) {
      if (!comma) unexpected("',' or ')'");
      next();
      std::int64_t size = 0;
      const char* const start = text_.data() + at_;
      const auto [end, error] = std::from_chars(start, text_.data() + text_.size(), size);
      if (error == std::errc::invalid_argument) unexpected("a size");
      const std::string_view digits(start, static_cast<std::size_t>(end - start));
      if (error == std::errc::result_out_of_range || size < 0) {
        raise_bad_npy(path_, fmt::format("expected sizes from 0 to 2^63 - 1 in shape, got {}", printable(digits)));
      }
      at_ += digits.size();
      sizes.push_back(size);
      if (sizes.size() > kMostDimensions) {
        raise_bad_npy(path_, fmt::format("expected at most {} dimensions, got more", kMostDimensions));
      }
      comma = accept(',');
    }
    // Python reads (3) as a number; the tuple is (3,).
    if (sizes.size() == 1 && !comma) raise_bad_npy(path_, fmt::format("expected a tuple as shape, got ({})", sizes[0]));
    return sizes;
  }

  std::string_view text_;
  const std::string& path_;
  std::size_t at_ = 0;
};

}  // namespace

NpyDictionary parse_npy_dictionary(std::string_view text, const std::string& path) {
  return Parser(text, path).parse();
}

}  // namespace keel::io
