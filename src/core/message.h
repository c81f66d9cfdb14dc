#pragma once

#include <array>
#include <cstdint>
#include <sstream>
#include <string>

#include "keel/error.h"
#include "keel/view.h"

namespace keel {

template <class... Parts>
std::string concat(const Parts&... parts) {
  std::ostringstream text;
  text.exceptions(std::ios::badbit);  // else a text cut short by lack of memory would pass unnoticed
  (text << ... << parts);
  return text.str();
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
