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

// How elements of a gradient are written. Told apart once per row: a branch per element would take longer than the rest.
enum class Writing : std::uint8_t { pairs, floats, any };  // pairs: two 16-bit elements at once; floats: f32, overwritten

template <class Element>
KEEL_DEVICE Writing writing_of(const MutableStrided& to, bool accumulate, std::int64_t first) {
  if (accumulate || to.column != 1) return Writing::any;
  if (to.dtype == DType::f32) return Writing::floats;
  return reinterpret_cast<std::uintptr_t>(static_cast<Element*>(to.data) + first) % 4 == 0 ? Writing::pairs
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

// Eight adjacent columns.
template <class Element>
KEEL_DEVICE void put_8(const MutableStrided& to, bool accumulate, std::int64_t at, const float (&x)[8]) {
  Element* const a = static_cast<Element*>(to.data) + at;
  const bool whole = to.dtype != DType::f32 && !accumulate && to.column == 1;
  if (whole && reinterpret_cast<std::uintptr_t>(a) % 16 == 0) {
    *reinterpret_cast<uint4*>(a) = make_uint4(ptx::pack<Element>(x[0], x[1]), ptx::pack<Element>(x[2], x[3]),
                                              ptx::pack<Element>(x[4], x[5]), ptx::pack<Element>(x[6], x[7]));
    return;
  }
#pragma unroll
  for (int c = 0; c < 8; c += 2) put_pair<Element>(to, accumulate, at + c * to.column, x[c], x[c + 1]);
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

// A thread's accumulators x of keys `key` and `key` + 8 of the tile, by each of the four threads that hold them.
template <class Element, int kCount>
KEEL_DEVICE void store_keys(const BackwardArguments& a, const KeyTile& tile, int key, const float (&x)[kCount],
                            const KeyRows& rows) {
  if (!rows.to) return;
  const Call& f = a.call.forward;
  const int lane = threadIdx.x & 31;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    float zero = 0;  // NaN where x has NaN or infinity
#pragma unroll
    for (int j = 0; j < kCount / 2; ++j) zero = fmaf(x[j / 2 * 4 + 2 * r + (j & 1)], 0.0f, zero);
    zero = sum_of_quad(zero);
    const int in_tile = key + 8 * r, row = tile.k_begin + tile.first_key + in_tile;
    if (in_tile >= tile.keys) continue;
    const bool real = tile.first_key + in_tile < tile.k_len;
    if (real && zero != 0.0f) {
      if ((lane & 3) == 0) note(rows.odd, (std::int64_t{tile.batch} * f.kv_heads + tile.head) * f.sequences.n_k + row);
      continue;
    }
    const int column = (lane & 3) * 2;
    const std::int64_t first = place_in(rows.to, tile.batch, tile.head, row, column);
    const auto each_pair = [&](const auto& put) {
#pragma unroll
      for (int j = 0; j < kCount / 4; ++j) {
        if (8 * j < rows.d) put(8 * j, real ? x[4 * j + 2 * r] : 0.0f, real ? x[4 * j + 2 * r + 1] : 0.0f);
      }
    };
    switch (writing_of<Element>(rows.to, a.call.accumulate, first)) {
      case Writing::pairs: {
        Element* const to = static_cast<Element*>(rows.to.data) + first;
        each_pair([&](int c, float low, float high) {
          *reinterpret_cast<std::uint32_t*>(to + c) = ptx::pack<Element>(low, high);
        });
        break;
      }
      case Writing::floats: {
        float* const to = static_cast<float*>(rows.to.data) + first;
        each_pair([&](int c, float low, float high) { to[c] = low, to[c + 1] = high; });
        break;
      }
      case Writing::any:
        each_pair([&](int c, float low, float high) {
          put_pair<Element>(rows.to, a.call.accumulate, first + c * rows.to.column, low, high);
        });
        break;
    }
  }
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
