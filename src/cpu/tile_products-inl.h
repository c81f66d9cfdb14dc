// Products by tiles: registers of 16 rows of 64 bytes, of which one instruction multiplies 16 × 32 by 32 × 16 bf16 and
// adds to 16 × 16 sums in f32. `Tiles` is the unit, or what stands for it in tests.
//
// Per 32 × 32 sums and 32 products each: 4 instructions of 16 cycles, beside which 4 loads of 8 cycles are free. Stores
// of sums are not quite, so a product should be deep: q·kᵀ is d deep, p·v as deep as a block has keys.
#if defined(KEEL_CPU_TILE_PRODUCTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KEEL_CPU_TILE_PRODUCTS_INL_H_
#undef KEEL_CPU_TILE_PRODUCTS_INL_H_
#else
#define KEEL_CPU_TILE_PRODUCTS_INL_H_
#endif

#include <hwy/highway.h>

#include <cstdint>
#include <utility>

#include "cpu/products-inl.h"
#include "cpu/tile_queue-inl.h"

HWY_BEFORE_NAMESPACE();
namespace keel::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET == HWY_AVX3
// AMX. The instructions are written out because the compiler's target does not include them. Strides count bytes.
struct HardwareTiles {
  using Rounding = HardwareRounding;

  struct alignas(64) Shapes {
    std::uint8_t palette = 1, start = 0, unused[14] = {};
    std::uint16_t bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
    std::uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
  };
  static void Begin() {
    const Shapes shapes;
    asm volatile("ldtilecfg %0" ::"m"(shapes));
  }
  static void End() { asm volatile("tilerelease" ::); }

  template <int t>
  static HWY_INLINE void Zero() {
    asm volatile("tilezero %%tmm%c0" ::"i"(t));
  }
  template <int t>
  static HWY_INLINE void Load(const void* from, std::ptrdiff_t stride) {
    asm volatile("tileloadd (%0,%1,1), %%tmm%c2" ::"r"(from), "r"(stride), "i"(t) : "memory");
  }
  template <int t>
  static HWY_INLINE void Store(void* to, std::ptrdiff_t stride) {
    asm volatile("tilestored %%tmm%c2, (%0,%1,1)" ::"r"(to), "r"(stride), "i"(t) : "memory");
  }
  // c += a·b.
  template <int c, int a, int b>
  static HWY_INLINE void MultiplyAdd() {
    asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(c), "i"(a), "i"(b));
  }
};
#endif

// What the kernels that multiply by tiles share, for operands of kParts parts each.
template <class Tiles, int kParts>
struct TileMultiply {
  using Queue = TileQueue<Tiles, kParts>;
  static constexpr bool kStreams = false, kLateScale = true;
  static constexpr std::int64_t kTile = 16;
  static constexpr std::int64_t kRowTile = 2 * kTile, kStripRows = kRowTile;
  static int TileRows(std::int64_t rows) { return rows <= kTile ? kTile : kRowTile; }
  static std::int64_t TiledRows(std::int64_t rows) { return RoundUp(rows, kTile); }

  static void Begin() { Tiles::Begin(); }
  static void End() { Tiles::End(); }

  template <Into kInto>
  static void Multiply(const TileProduct& x, std::ptrdiff_t columns) {
    if constexpr (kInto == Into::kAdd) ScaleRows(x, columns, /*ones=*/false);
    constexpr bool kExtends = kInto == Into::kAdd;
    std::ptrdiff_t c = 0;
    if (x.rows > kTile) {
      for (; c + 2 * kTile <= columns; c += 2 * kTile) Block<2, 2, kExtends>(x, c);
      if (c < columns) Block<2, 1, kExtends>(x, c);
    } else {
      for (; c + 4 * kTile <= columns; c += 4 * kTile) Block<1, 4, kExtends>(x, c);
      for (; c < columns; c += kTile) Block<1, 1, kExtends>(x, c);
    }
    if constexpr (kInto == Into::kScale) ScaleRows(x, columns, /*ones=*/true);
  }
  template <Into kInto>
  static void MultiplyPanel(const TileProduct& x, std::ptrdiff_t columns) {
    Multiply<kInto>(x, columns);
  }

 private:
  // MT × NT tiles of C from column c on.
  template <int MT, int NT, bool kExtends>
  static HWY_NOINLINE void Block(const TileProduct& x, std::ptrdiff_t c) {
    static_assert(MT * NT <= 4 && (MT == 1 || NT <= 2));
    constexpr auto each = [](auto f) {
      [&]<int... i>(std::integer_sequence<int, i...>) { (f(std::integral_constant<int, i>()), ...); }
      (std::make_integer_sequence<int, MT * NT>());
    };
    const std::ptrdiff_t ldc = x.ldc * 4;
    float* const to = x.c + c;
    each([&]<int i>(std::integral_constant<int, i>) {
      if constexpr (kExtends) {
        Tiles::template Load<i>(to + i / NT * kTile * x.ldc + i % NT * kTile, ldc);
      } else {
        Tiles::template Zero<i>();
      }
    });
    const Pair *a = x.a, *b = x.b + x.layout.At(0, c);
    constexpr std::ptrdiff_t kDepth = kTile * kParts;
    for (std::ptrdiff_t step = 0; step < x.k; step += kDepth, a += kDepth, b += kDepth * x.layout.row) {
      TileStep<Tiles, kParts, MT, NT>(x, a, b);
    }
    each([&]<int i>(std::integral_constant<int, i>) {
      Tiles::template Store<i>(to + i / NT * kTile * x.ldc + i % NT * kTile, ldc);
    });
  }
};

// bf16 as it is.
template <class Tiles>
struct TileProducts : PairProducts<typename Tiles::Rounding, 16>, TileMultiply<Tiles, 1> {
  static constexpr bool kTransposesSums = true;
  static constexpr std::int64_t kKeyTile = 64;
  using Pairs = PairProducts<typename Tiles::Rounding, 16>;
  using Multiplies = TileMultiply<Tiles, 1>;
  using Multiplies::Begin;
  using Multiplies::End;
  using typename Multiplies::Queue;
};

}  // namespace keel::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
