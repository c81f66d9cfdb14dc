#include "cpu/emulated_tiles.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/emulated_tiles.cc"
#include <hwy/foreach_target.h>  // must come first
#include <hwy/highway.h>

#include <bit>
#include <cstring>

#include "cpu/backward-inl.h"
#include "cpu/forward-inl.h"
#include "cpu/split_products-inl.h"
#include "cpu/tile_products-inl.h"

// Two targets are enough: the one that AMX comes with and the one that every machine has.
#define KEEL_EMULATES (HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_STATIC_TARGET)

HWY_BEFORE_NAMESPACE();
namespace keel::cpu::HWY_NAMESPACE {
#if KEEL_EMULATES

// The tile instructions as the manual defines them: denormal numbers count as 0, and of the 32 products that join a sum
// the even ones are added up, then the odd ones, then both.
struct EmulatedTiles {
  using Rounding = SoftwareRounding;
  static constexpr int kRows = 16, kWords = 16;

  static void Begin() { std::memset(tiles, 0, sizeof(tiles)); }
  static void End() { std::memset(tiles, 0xFF, sizeof(tiles)); }  // NaN: a product outside of Begin() and End() shows

  template <int t>
  static void Zero() {
    std::memset(tiles[t], 0, sizeof(tiles[t]));
  }
  template <int t>
  static void Load(const void* from, std::ptrdiff_t stride) {
    for (int r = 0; r < kRows; ++r) std::memcpy(tiles[t][r], static_cast<const char*>(from) + r * stride, 64);
  }
  template <int t>
  static void Store(void* to, std::ptrdiff_t stride) {
    for (int r = 0; r < kRows; ++r) std::memcpy(static_cast<char*>(to) + r * stride, tiles[t][r], 64);
  }
  template <int c, int a, int b>
  static void MultiplyAdd() {
    float right[2][kWords][kWords];
    for (int k = 0; k < kWords; ++k) {
      for (int n = 0; n < kWords; ++n) right[0][k][n] = Even(tiles[b][k][n]), right[1][k][n] = Odd(tiles[b][k][n]);
    }
    for (int m = 0; m < kRows; ++m) {
      float even[kWords] = {}, odd[kWords] = {};
      for (int k = 0; k < kWords; ++k) {
        const float left0 = Even(tiles[a][m][k]), left1 = Odd(tiles[a][m][k]);
        for (int n = 0; n < kWords; ++n) even[n] = Flushed(even[n] + left0 * right[0][k][n]);  // the product is exact
        for (int n = 0; n < kWords; ++n) odd[n] = Flushed(odd[n] + left1 * right[1][k][n]);
      }
      for (int n = 0; n < kWords; ++n) {
        const float sum = Flushed(Flushed(std::bit_cast<float>(tiles[c][m][n])) + Flushed(even[n] + odd[n]));
        tiles[c][m][n] = std::bit_cast<std::uint32_t>(sum);
      }
    }
  }

 private:
  static float Flushed(float x) {
    const auto bits = std::bit_cast<std::uint32_t>(x);
    return std::bit_cast<float>((bits & 0x7F800000u) == 0 ? bits & 0x80000000u : bits);
  }
  static float Even(std::uint32_t pair) { return Flushed(std::bit_cast<float>(pair << 16)); }
  static float Odd(std::uint32_t pair) { return Flushed(std::bit_cast<float>(pair & 0xFFFF0000u)); }

  static thread_local std::uint32_t tiles[8][kRows][kWords];
};
thread_local std::uint32_t EmulatedTiles::tiles[8][kRows][kWords];

UnitKernels EmulatedKernels() {
  using Products = TileProducts<EmulatedTiles>;
  return {"emulated tiles", 32, 256, MakeForwardKernel<Products>(), MakeBackwardKernel<Products>()};
}
UnitKernels EmulatedSplitKernels() {
  using Products = SplitProducts<EmulatedTiles>;
  return {"emulated tiles", 32, kSplitKeys, MakeForwardKernel<Products>(), {}, nullptr, DType::f32, 6};
}

#endif
}  // namespace keel::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace keel::cpu {

std::vector<const UnitKernels*> emulated_tiles(DType dtype) {
  const bool splits = dtype == DType::f32;
  static const UnitKernels everywhere = HWY_STATIC_DISPATCH(EmulatedKernels)();
  static const UnitKernels split_everywhere = HWY_STATIC_DISPATCH(EmulatedSplitKernels)();
  std::vector<const UnitKernels*> kernels = {splits ? &split_everywhere : &everywhere};
#if HWY_TARGETS & HWY_AVX3
  if ((hwy::SupportedTargets() & HWY_AVX3) != 0) {
    static const UnitKernels wide = N_AVX3::EmulatedKernels();
    static const UnitKernels split_wide = N_AVX3::EmulatedSplitKernels();
    kernels.push_back(splits ? &split_wide : &wide);
  }
#endif
  return kernels;
}

}  // namespace keel::cpu
#endif
