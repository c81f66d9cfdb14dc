#pragma once

#include <array>
#include <concepts>
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>

#include "keel/error.h"
#include "keel/view.h"

namespace keel {

// One part of a message. Not by a stream: that would bring in every facet of a locale, and follow the program's.
inline std::string text_of(std::string_view text) { return std::string(text); }
template <std::integral T>
std::string text_of(T number) {
  return std::to_string(number);
}
inline std::string text_of(double number) {
  char digits[32];
  std::snprintf(digits, sizeof(digits), "%g", number);
  return digits;
}

template <class... Parts>
std::string concat(const Parts&... parts) {
  std::string text;
  ((text += text_of(parts)), ...);
  return text;
}

// "(1, 8, 1024, 64)"
template <std::size_t Rank>
std::string text_of(const std::array<std::int64_t, Rank>& shape) {
  std::string text = "(";
  for (std::size_t i = 0; i < Rank; ++i) text += (i == 0 ? "" : ", ") + std::to_string(shape[i]);
  return text + ")";
}

constexpr const char* name_of(DeviceKind kind) {
  switch (kind) {
    case DeviceKind::cpu:
      return "cpu";
    case DeviceKind::cuda:
      return "cuda";
    case DeviceKind::extension:
      return "extension";
  }
  return "an unknown kind of device";
}

// "cpu", "cuda:1"
inline std::string text_of(const Device& device) {
  const std::string name = name_of(device.kind);
  return device.kind == DeviceKind::cpu && device.index == 0 ? name : name + ":" + std::to_string(device.index);
}

}  // namespace keel
