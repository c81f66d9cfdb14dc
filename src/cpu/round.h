#pragma once

#include <hwy/base.h>

#include <cstdint>

namespace keel::cpu {

constexpr std::int64_t RoundUp(std::int64_t n, std::int64_t multiple) { return hwy::DivCeil(n, multiple) * multiple; }

}  // namespace keel::cpu
