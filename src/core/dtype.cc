#include "keel/dtype.h"

#include <cmath>

namespace keel {
namespace {

// x rounded to the nearest float of `fraction_bits` bits after the leading one (ties to even) whose exponent is at
// least `min_exponent`; below that the spacing stays that of the subnormals.
double round_to(double x, int fraction_bits, int min_exponent) {
  int exponent = 0;
  std::frexp(x, &exponent);  // |x| in [2^(exponent-1), 2^exponent)
  const int lsb = std::max(exponent - 1, min_exponent) - fraction_bits;
  return std::ldexp(std::nearbyint(std::ldexp(x, -lsb)), lsb);
}

}  // namespace

Float16 to_float16(double x) noexcept {
  const std::uint16_t sign = std::signbit(x) ? 0x8000 : 0;
  const auto with_sign = [sign](unsigned bits) { return Float16{static_cast<std::uint16_t>(sign | bits)}; };
  if (std::isnan(x)) return with_sign(0x7E00);
  const double magnitude = std::isinf(x) ? x : round_to(std::fabs(x), 10, -14);
  if (std::fabs(magnitude) > 65504.0) return with_sign(0x7C00);
  if (magnitude < 0x1p-14) return with_sign(static_cast<unsigned>(magnitude * 0x1p24));
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(static_cast<float>(magnitude));
  return with_sign((bits - (112u << 23)) >> 13);
}

BFloat16 to_bfloat16(double x) noexcept {
  if (std::isnan(x)) return {static_cast<std::uint16_t>(std::signbit(x) ? 0xFFC0 : 0x7FC0)};
  // Exact in float after the rounding, or beyond its range and so infinite.
  const float rounded = static_cast<float>(std::isinf(x) ? x : round_to(x, 7, -126));
  return {static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(rounded) >> 16)};
}

}  // namespace keel
