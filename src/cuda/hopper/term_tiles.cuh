#pragma once

#include "cuda/hopper/loader.cuh"

// Tiles of a bias or mask: 64 rows, those of a warpgroup, by a block of keys, in rows of 128 bytes that are swizzled as
// the copy engine does it. Loaded one block ahead by a thread of its own; each warpgroup has a tile, which it gives
// back as soon as it has read it.
namespace keel::cuda::hopper {

template <class S>
KEEL_DEVICE const Strided& term_of(const ForwardArguments& a) {
  return S::term_bytes == 1 ? a.call.mask : a.call.bias;
}

// The loading thread. An array that is the same for all rows, heads or entries has one of them in its tensor map.
template <class S, class Element>
KEEL_DEVICE void load_terms(Shared<Element, S>& shared, const Maps& maps, const ForwardArguments& a) {
  using namespace ptx;
  constexpr int kWide = 128 / S::term_bytes;  // keys of a panel
  const Strided& x = term_of<S>(a);
  const int rows = x.row != 0 ? 64 : 1, row_step = x.row != 0 ? 1 : 0;
  int step = 0;
  for (int round = 0;; ++round) {
    wait(shared_address(&shared.tile_full[round & 1]), (round >> 1) & 1);
    const Tile& tile = shared.tile[round & 1];
    if (tile.index < 0) return;
    const int batch = x.batch != 0 ? tile.batch : 0, head = x.head != 0 ? tile.head : 0;
    const int row = row_step * tile.first_row, begin = tile.block_begin;
    for (int n = tile.block_end - 1; n >= begin; --n, ++step) {
#pragma unroll
      for (int g = 0; g < S::groups; ++g) {
        const std::uint32_t full = shared_address(&shared.term_full[g]);
        wait(shared_address(&shared.term_empty[g]), (step & 1) ^ 1);
        arrive_expecting(full, rows * S::keys * S::term_bytes);
#pragma unroll
        for (int p = 0; p < S::keys / kWide; ++p) {
          load_tile(shared_address(shared.term[g]) + p * 64 * 128, maps.term, full,
                    {n * S::keys + p * kWide, 0, row + row_step * 64 * g, head, batch});
        }
      }
    }
  }
}

// Where a lane reads its part of the first 16 columns of its warp's rows.
template <class S>
KEEL_DEVICE std::uint32_t first_term(const ForwardArguments& a, const void* tile, int warp, int lane) {
  const int row = term_of<S>(a).row != 0 ? warp * 16 + (lane & 15) : 0;
  return ptx::shared_address(tile) + row * 128 + (((lane >> 4) ^ (row & 7)) << 4);
}

// s += bias · unit.
template <class Element, int kKeys>
KEEL_DEVICE void add_bias(float (&s)[kKeys / 2], std::uint32_t first, float unit) {
#pragma unroll
  for (int g = 0; g < kKeys / 16; ++g) {
    std::uint32_t x[4];
    ptx::load_matrices((first + g / 4 * 64 * 128) ^ (g % 4 << 5), x);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float2 b = ptx::unpack<Element>(x[i]);
      s[8 * g + 2 * i] = fmaf(b.x, unit, s[8 * g + 2 * i]);
      s[8 * g + 2 * i + 1] = fmaf(b.y, unit, s[8 * g + 2 * i + 1]);
    }
  }
}

// Of 32 bytes that are 0 or 1, four to a word: bit i is byte i.
KEEL_DEVICE std::uint32_t bits_of(const std::uint32_t (&words)[8]) {
  std::uint32_t bits = 0;
#pragma unroll
  for (int i = 3; i >= 0; --i) {
    bits = (bits << 8) + __dp4a(words[2 * i + 1], 0x80402010u, __dp4a(words[2 * i], 0x08040201u, 0u));
  }
  return bits;
}

// Of two rows, which keys of a block the mask shows: bit 2·j + b is the thread's key 8·j + b. Thread l of the four of a
// row reads keys 4·l to 4·l + 3 of each 16, and has columns 2·l, 2·l + 1, 2·l + 8 and 2·l + 9 of them: it takes its
// pairs from threads l / 2 and l / 2 + 2.
KEEL_DEVICE void read_mask(std::uint32_t first, int lane, std::uint32_t (&seen)[2]) {
  std::uint32_t words[2][8], all = 0;
#pragma unroll
  for (int h = 0; h < 4; ++h) {
    std::uint32_t x[4];
    ptx::load_matrices(first ^ (h << 5), x);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      words[i % 2][2 * h + i / 2] = x[i];
      all |= x[i];
    }
  }
  if ((all & 0xfefefefeu) != 0) {  // true, but not 1
#pragma unroll
    for (int i = 0; i < 16; ++i) words[i / 8][i % 8] = __vsetne4(words[i / 8][i % 8], 0);
  }
  const int l = lane & 3, shift = 2 * (l & 1);
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const std::uint32_t mine = bits_of(words[r]);
    const std::uint32_t low = __shfl_sync(~0u, mine, l >> 1, 4) >> shift;
    const std::uint32_t high = __shfl_sync(~0u, mine, (l >> 1) + 2, 4) >> shift;
    seen[r] = (low & 0x33333333u) | (high & 0x33333333u) << 2;
    asm("" : "+r"(seen[r]));  // else bits are taken out of the two parts, one by one
  }
}

}  // namespace keel::cuda::hopper
