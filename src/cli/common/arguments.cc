#include "cli/common/arguments.h"

#include <fmt/format.h>

#include <charconv>

namespace keel::cli {
namespace {

template <class Number>
std::vector<Number> numbers(const std::string& text, const std::string& flag, const char* kind) {
  std::vector<Number> values;
  for (const std::string& part : split(text)) {
    Number value{};
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), value);
    if (error != std::errc() || end != part.data() + part.size()) {
      throw CLI::ValidationError(flag, fmt::format("expected {} separated by commas, got '{}'", kind, text));
    }
    values.push_back(value);
  }
  return values;
}

}  // namespace

const CLI::Validator kNotEmpty(
    [](const std::string& text) { return text.empty() ? std::string("expected a value, got an empty one") : ""; }, "");

std::vector<std::int64_t> integers(const std::string& text, const std::string& flag) {
  return numbers<std::int64_t>(text, flag, "integers");
}

std::vector<double> floats(const std::string& text, const std::string& flag) {
  return numbers<double>(text, flag, "numbers");
}

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts(1);
  for (const char c : text) {
    if (c == ',') {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  return parts;
}

std::uint64_t seed_number(const std::string& text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) {
    throw CLI::ValidationError("--seed", fmt::format("expected an integer from 0 to 2^64 - 1, got '{}'", text));
  }
  return value;
}

}  // namespace keel::cli
