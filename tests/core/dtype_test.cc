#include "keel/dtype.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "conformance/generator.h"

namespace keel {
namespace {

// The value of a 16-bit pattern by the definition of its format.
double value_of(std::uint16_t bits, int exponent_bits, int fraction_bits) {
  const int bias = (1 << (exponent_bits - 1)) - 1, top = (1 << exponent_bits) - 1;
  const int exponent = (bits >> fraction_bits) & top, fraction = bits & ((1 << fraction_bits) - 1);
  const double sign = (bits & 0x8000) != 0 ? -1.0 : 1.0;
  if (exponent == top) return fraction != 0 ? std::nan("") : sign * INFINITY;
  if (exponent == 0) return sign * std::ldexp(fraction, 1 - bias - fraction_bits);
  return sign * std::ldexp((1 << fraction_bits) + fraction, exponent - bias - fraction_bits);
}

// Both formats behind one face.
struct Half {
  static constexpr int kExponent = 5, kFraction = 10;
  static float decode(std::uint16_t bits) { return to_float(Float16{bits}); }
  static std::uint16_t encode(double x) { return to_float16(x).bits; }
};
struct Brain {
  static constexpr int kExponent = 8, kFraction = 7;
  static float decode(std::uint16_t bits) { return to_float(BFloat16{bits}); }
  static std::uint16_t encode(double x) { return to_bfloat16(x).bits; }
};

template <class Format>
class SixteenBits : public testing::Test {};
using Formats = testing::Types<Half, Brain>;
TYPED_TEST_SUITE(SixteenBits, Formats);

bool is_nan(std::uint16_t bits, int fraction_bits) {
  const unsigned top = 0x7FFFu & ~((1u << fraction_bits) - 1u);
  return (bits & 0x7FFFu) > top;
}

TYPED_TEST(SixteenBits, EveryPatternDecodesToItsDefinition) {
  for (unsigned bits = 0; bits < 65536; ++bits) {
    const double got = TypeParam::decode(static_cast<std::uint16_t>(bits));
    const double want = value_of(static_cast<std::uint16_t>(bits), TypeParam::kExponent, TypeParam::kFraction);
    if (std::isnan(want)) {
      EXPECT_TRUE(std::isnan(got)) << bits;
    } else {
      EXPECT_EQ(got, want) << bits;
      EXPECT_EQ(std::signbit(got), std::signbit(want)) << bits;
    }
  }
}

TYPED_TEST(SixteenBits, EveryPatternComesBack) {
  for (unsigned bits = 0; bits < 65536; ++bits) {
    const std::uint16_t back = TypeParam::encode(TypeParam::decode(static_cast<std::uint16_t>(bits)));
    if (is_nan(static_cast<std::uint16_t>(bits), TypeParam::kFraction)) {
      EXPECT_TRUE(is_nan(back, TypeParam::kFraction)) << bits;
      EXPECT_EQ(back & 0x8000u, bits & 0x8000u) << bits;
    } else {
      EXPECT_EQ(back, bits);
    }
  }
}

// Between each two neighbours: the middle goes to the even one, a hair to either side to that side.
TYPED_TEST(SixteenBits, RoundsToNearestTiesToEven) {
  const unsigned infinity = 0x7FFFu & ~((1u << TypeParam::kFraction) - 1u);
  for (unsigned bits = 0; bits < infinity; ++bits) {
    const double low = TypeParam::decode(static_cast<std::uint16_t>(bits));
    double high = TypeParam::decode(static_cast<std::uint16_t>(bits + 1));
    if (bits + 1 == infinity) high = 2.0 * low - TypeParam::decode(static_cast<std::uint16_t>(bits - 1));
    const double middle = 0.5 * (low + high);
    const unsigned even = bits % 2 == 0 ? bits : bits + 1;
    EXPECT_EQ(TypeParam::encode(middle), even);
    EXPECT_EQ(TypeParam::encode(-middle), even | 0x8000u);
    EXPECT_EQ(TypeParam::encode(std::nextafter(middle, 0.0)), bits);
    EXPECT_EQ(TypeParam::encode(std::nextafter(middle, INFINITY)), bits + 1);
  }
}

TYPED_TEST(SixteenBits, TooLargeBecomesInfinityAndTooSmallZero) {
  const unsigned infinity = 0x7FFFu & ~((1u << TypeParam::kFraction) - 1u);
  for (const double x : {1e39, 1e300, std::numeric_limits<double>::max(), double{INFINITY}}) {
    EXPECT_EQ(TypeParam::encode(x), infinity);
    EXPECT_EQ(TypeParam::encode(-x), infinity | 0x8000u);
  }
  for (const double x : {1e-50, 1e-300, std::numeric_limits<double>::denorm_min(), 0.0}) {
    EXPECT_EQ(TypeParam::encode(x), 0u);
    EXPECT_EQ(TypeParam::encode(-x), 0x8000u);
  }
  EXPECT_TRUE(is_nan(TypeParam::encode(NAN), TypeParam::kFraction));
}

// Random doubles against a search for the nearest pattern.
TYPED_TEST(SixteenBits, AgreesWithASearchForTheNearest) {
  std::vector<double> values;
  const unsigned infinity = 0x7FFFu & ~((1u << TypeParam::kFraction) - 1u);
  for (unsigned bits = 0; bits < infinity; ++bits)
    values.push_back(TypeParam::decode(static_cast<std::uint16_t>(bits)));
  conformance::Generator random(16);
  for (int n = 0; n < 20000; ++n) {
    const double x = std::ldexp(random.uniform(1.0, 2.0), static_cast<int>(random.integer(-30, 15)));
    const auto above = std::lower_bound(values.begin(), values.end(), x) - values.begin();
    if (above == 0 || above >= std::ssize(values)) continue;
    const double to_low = x - values[static_cast<std::size_t>(above - 1)];
    const double to_high = values[static_cast<std::size_t>(above)] - x;
    if (to_low == to_high) continue;
    EXPECT_EQ(TypeParam::encode(x), to_low < to_high ? above - 1 : above) << x;
  }
}

// Through float first, 1 + 2^-11 + 2^-40 would round to the tie and then down.
TEST(Float16, RoundsFromDoubleOnce) {
  EXPECT_EQ(to_float16(1.0 + 0x1p-11 + 0x1p-40).bits, 0x3C01);
  EXPECT_EQ(to_bfloat16(1.0 + 0x1p-8 + 0x1p-40).bits, 0x3F81);
}

#if defined(__FLT16_MAX__) && defined(__x86_64__)
TEST(Float16, AgreesWithTheCompiler) {
  conformance::Generator random(17);
  for (int n = 0; n < 100000; ++n) {
    const auto bits = static_cast<std::uint32_t>(random.next());
    const float x = std::bit_cast<float>(bits);
    if (std::isnan(x)) continue;
    EXPECT_EQ(to_float16(x).bits, std::bit_cast<std::uint16_t>(static_cast<_Float16>(x))) << x;
  }
}
#endif

TEST(DTypes, HaveSizesAndNames) {
  const std::pair<DType, std::pair<std::int64_t, const char*>> all[] = {
      {DType::f64, {8, "f64"}},   {DType::f32, {4, "f32"}},      {DType::f16, {2, "f16"}},
      {DType::bf16, {2, "bf16"}}, {DType::boolean, {1, "bool"}}, {DType::i64, {8, "i64"}}};
  for (const auto& [dtype, facts] : all) {
    EXPECT_EQ(size_of(dtype), facts.first);
    EXPECT_STREQ(name_of(dtype), facts.second);
    EXPECT_EQ(is_floating(dtype), dtype != DType::boolean && dtype != DType::i64);
  }
  EXPECT_EQ(size_of(static_cast<DType>(99)), 0);
  EXPECT_STREQ(name_of(static_cast<DType>(99)), "unknown");
  EXPECT_EQ(accumulation_dtype(DType::f64), DType::f64);
  EXPECT_EQ(accumulation_dtype(DType::bf16), DType::f32);
}

}  // namespace
}  // namespace keel
