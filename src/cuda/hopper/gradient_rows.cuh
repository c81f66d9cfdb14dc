#pragma once

#include "cuda/hopper/backward.h"
#include "cuda/hopper/ptx.cuh"

// What the backward kernels share: weights and their gradients in a thread's accumulators, and rows of gradients as
// they are written.
namespace keel::cuda::hopper {

KEEL_DEVICE void note(const OddGradients& odd, std::int64_t row) {
  odd.rows[atomicAdd(odd.count, 1u)] = static_cast<unsigned>(row);
}

KEEL_DEVICE float float_at(const Strided& x, std::int64_t at) { return load_as<float>(x.data, x.dtype, at); }

// How elements of a gradient are written. Told apart once per row: a branch per element would take longer than the
// rest.
enum class Writing : std::uint8_t {
  eights,  // 16-bit elements, eight at once
  floats,  // f32, overwritten
  any,
};

template <class Element>
KEEL_DEVICE Writing writing_of(const MutableStrided& to, bool accumulate, std::int64_t first) {
  if (accumulate || to.column != 1) return Writing::any;
  if (to.dtype == DType::f32) return Writing::floats;
  return reinterpret_cast<std::uintptr_t>(static_cast<Element*>(to.data) + first) % 16 == 0 ? Writing::eights
                                                                                            : Writing::any;
}

// Two adjacent columns of a row of a gradient, the first of which lies `at` elements from its data.
template <class Element>
KEEL_DEVICE void put_pair(const MutableStrided& to, bool accumulate, std::int64_t at, float x, float y) {
  if (to.dtype == DType::f32) {
    float* const a = static_cast<float*>(to.data) + at;
    a[0] = accumulate ? a[0] + x : x;
    a[to.column] = accumulate ? a[to.column] + y : y;
  } else {
    Element* const a = static_cast<Element*>(to.data) + at;
    a[0] = static_cast<Element>(accumulate ? x + static_cast<float>(a[0]) : x);
    a[to.column] = static_cast<Element>(accumulate ? y + static_cast<float>(a[to.column]) : y);
  }
}

// Eight adjacent columns of a row of any dtype.
template <class Element>
KEEL_DEVICE void load_8(const Strided& from, std::int64_t at, float (&x)[8]) {
  const Element* const a = static_cast<const Element*>(from.data) + at;
  if (from.dtype != DType::f32 && from.column == 1 && reinterpret_cast<std::uintptr_t>(a) % 16 == 0) {
    const uint4 loaded = *reinterpret_cast<const uint4*>(a);
    const std::uint32_t pairs[4] = {loaded.x, loaded.y, loaded.z, loaded.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float2 pair = ptx::unpack<Element>(pairs[i]);
      x[2 * i] = pair.x;
      x[2 * i + 1] = pair.y;
    }
    return;
  }
#pragma unroll
  for (int c = 0; c < 8; ++c) x[c] = float_at(from, at + c * from.column);
}

// Four threads beside each other have words i of four groups, i being the thread's place; then each has the four words
// of group i.
KEEL_DEVICE uint4 transpose_quad(std::uint32_t a, std::uint32_t b, std::uint32_t c, std::uint32_t d) {
  const bool odd = threadIdx.x & 1, high = threadIdx.x & 2;
  const std::uint32_t ab = __shfl_xor_sync(~0u, odd ? a : b, 1), cd = __shfl_xor_sync(~0u, odd ? c : d, 1);
  const std::uint32_t x0 = odd ? ab : a, x1 = odd ? b : ab, y0 = odd ? cd : c, y1 = odd ? d : cd;
  const std::uint32_t z0 = __shfl_xor_sync(~0u, high ? x0 : y0, 2), z1 = __shfl_xor_sync(~0u, high ? x1 : y1, 2);
  return high ? make_uint4(z0, z1, y0, y1) : make_uint4(x0, x1, z0, z1);
}

KEEL_DEVICE float sum_of_quad(float x) {
  x += __shfl_xor_sync(~0u, x, 1);
  return x + __shfl_xor_sync(~0u, x, 2);
}

// A gradient of which rows are keys: where it goes, its columns, and where rows are noted.
struct KeyRows {
  const MutableStrided& to;
  int d;
  const OddGradients& odd;
};

// A row of accumulators, the first (kRow 0) or second of those that a thread holds, of which four threads have two
// columns in every eight each; zeros where it is not real. `first` is the row's place. All threads of a warp come here
// together, with rows of their own.
template <class Element, int kRow, int kCount>
KEEL_DEVICE void put_row(const MutableStrided& to, bool accumulate, int d, std::int64_t first, bool writes, bool real,
                         const float (&x)[kCount]) {
  const int place = threadIdx.x & 3;
  const Writing writing = writing_of<Element>(to, accumulate, first);
  if (__all_sync(~0u, writing == Writing::eights)) {
    Element* const row = static_cast<Element*>(to.data) + first + 8 * place;
#pragma unroll
    for (int j = 0; j < kCount / 4; j += 4) {
      std::uint32_t words[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const std::uint32_t pair = ptx::pack<Element>(x[4 * (j + i) + 2 * kRow], x[4 * (j + i) + 2 * kRow + 1]);
        words[i] = real ? pair : 0u;
      }
      const uint4 eight = transpose_quad(words[0], words[1], words[2], words[3]);
      if (writes && 8 * (j + place) < d) *reinterpret_cast<uint4*>(row + 8 * j) = eight;
    }
    return;
  }
  if (!writes) return;
  const auto each_pair = [&](const auto& put) {
#pragma unroll
    for (int j = 0; j < kCount / 4; ++j) {
      if (8 * j >= d) continue;
      put(8 * j + 2 * place, real ? x[4 * j + 2 * kRow] : 0.0f, real ? x[4 * j + 2 * kRow + 1] : 0.0f);
    }
  };
  if (writing == Writing::floats) {
    float* const row = static_cast<float*>(to.data) + first;
    each_pair([&](int c, float low, float high) { row[c] = low, row[c + 1] = high; });
  } else {
    each_pair(
        [&](int c, float low, float high) { put_pair<Element>(to, accumulate, first + c * to.column, low, high); });
  }
}

// NaN where a row of accumulators has NaN or infinity, else 0.
template <int kRow, int kCount>
KEEL_DEVICE float zero_of_row(const float (&x)[kCount]) {
  float zero = 0;
#pragma unroll
  for (int j = 0; j < kCount / 2; ++j) zero = fmaf(x[j / 2 * 4 + 2 * kRow + (j & 1)], 0.0f, zero);
  return sum_of_quad(zero);
}

template <class Element, int kRow, int kCount>
KEEL_DEVICE void store_key(const BackwardArguments& a, const KeyTile& tile, int in_tile, const float (&x)[kCount],
                           const KeyRows& rows) {
  const Call& f = a.call.forward;
  const int row = tile.k_begin + tile.first_key + in_tile;
  const bool inside = in_tile < tile.keys, real = tile.first_key + in_tile < tile.k_len;
  const bool odd = zero_of_row<kRow>(x) != 0.0f && inside && real;
  if (odd && (threadIdx.x & 3) == 0) {
    note(rows.odd, (std::int64_t{tile.batch} * f.kv_heads + tile.head) * f.sequences.n_k + row);
  }
  put_row<Element, kRow>(rows.to, a.call.accumulate, rows.d, place_in(rows.to, tile.batch, tile.head, row),
                         inside && !odd, real, x);
}

// A thread's accumulators x of keys `key` and `key` + 8 of the tile, by each of the four threads that hold them.
template <class Element, int kCount>
KEEL_DEVICE void store_keys(const BackwardArguments& a, const KeyTile& tile, int key, const float (&x)[kCount],
                            const KeyRows& rows) {
  if (!rows.to) return;
  store_key<Element, 0>(a, tile, key, x, rows);
  store_key<Element, 1>(a, tile, key + 8, x, rows);
}

KEEL_DEVICE KeyRows rows_of_dk(const BackwardArguments& a) {
  return {a.call.dk, static_cast<int>(a.call.forward.d_k), a.odd_dk};
}
KEEL_DEVICE KeyRows rows_of_dv(const BackwardArguments& a) {
  return {a.call.dv, static_cast<int>(a.call.forward.d_v), a.odd_dv};
}

// The scale of a block of keys: the same for all heads that share them.
KEEL_DEVICE float scale_of(const BackwardArguments& a, const KeyTile& tile) {
  const Strided& x = a.call.forward.scale_tensor;
  if (!x) return static_cast<float>(a.call.forward.scale);
  return float_at(x, place_in(x, tile.batch, tile.head * a.call.forward.group, 0));
}

KEEL_DEVICE float scale_of_row(const Call& f, std::int64_t b, std::int64_t h, std::int64_t row) {
  return f.scale_tensor ? load_row_value<float>(f.scale_tensor, b, h, row) : static_cast<float>(f.scale);
}

// Whether a block of keys may add to dq where `added` blocks have: in turn, or in any order after the first, which
// stores.
KEEL_DEVICE bool may_add(bool ordered, int added, int turn) { return ordered ? added == turn : added > 0; }

// Calls change(i) for the elements i of a thread's scores, keys `key` and `key` + 8 of the tile by kRows rows from
// first_row on, that masks by position hide.
template <int kRows, class Change>
KEEL_DEVICE void where_hidden(const KeyTile& tile, const Window& window, int key, int first_row, const Change& change) {
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const Keys rows = rows_of(tile, window, tile.first_key + key + 8 * r);
    const int base = first_row + (threadIdx.x & 3) * 2 - rows.begin, count = rows.end - rows.begin;
#pragma unroll
    for (int j = 0; j < kRows / 4; ++j) {
      if (static_cast<unsigned>(base + j / 2 * 8 + (j & 1)) >= static_cast<unsigned>(count)) {
        change(j / 2 * 4 + 2 * r + (j & 1));
      }
    }
  }
}

// Accumulators as the register operand of a product.
template <class Element, int kCount>
KEEL_DEVICE void pack_all(const float (&x)[kCount], std::uint32_t (&to)[kCount / 2]) {
#pragma unroll
  for (int i = 0; i < kCount / 2; ++i) to[i] = ptx::pack<Element>(x[2 * i], x[2 * i + 1]);
}

// p of a thread's scores q·k.
template <int kRows>
KEEL_DEVICE void weigh(float (&s)[kRows / 2], float scale_log2, const float* lse_log2) {
#pragma unroll
  for (int j = 0; j < kRows / 8; ++j) {
    const float2 lse = *reinterpret_cast<const float2*>(&lse_log2[8 * j + (threadIdx.x & 3) * 2]);
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      s[4 * j + e] = ptx::exp2_fast(fmaf(s[4 * j + e], scale_log2, -((e & 1) ? lse.y : lse.x)));
    }
  }
}

// ds in place of dp.
template <int kRows>
KEEL_DEVICE void differentiate(const float (&p)[kRows / 2], float (&dp)[kRows / 2], const float* delta) {
#pragma unroll
  for (int j = 0; j < kRows / 8; ++j) {
    const float2 of_row = *reinterpret_cast<const float2*>(&delta[8 * j + (threadIdx.x & 3) * 2]);
#pragma unroll
    for (int e = 0; e < 4; ++e) dp[4 * j + e] = p[4 * j + e] * (dp[4 * j + e] - ((e & 1) ? of_row.y : of_row.x));
  }
}

}  // namespace keel::cuda::hopper
