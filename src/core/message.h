#pragma once

#include <array>
#include <cstdint>
#include <sstream>
#include <string>

#include "keel/error.h"

namespace keel {

template <class... Parts>
std::string concat(const Parts&... parts) {
  std::ostringstream text;
  text.exceptions(std::ios::badbit);  // or a text that memory did not suffice for would end early, without a word
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

}  // namespace keel
