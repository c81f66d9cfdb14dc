#pragma once

#include "cuda/hopper/gradient_rows.cuh"

// What comes before and after the blocks of keys, at the speed of memory: numbers per row; dq from the workspace; and
// what is computed again. A row is shared by a.lanes threads, of 8 columns each.
namespace keel::cuda::hopper {

constexpr int kPassThreads = 256;

// An lse beyond this is too coarse, in f32, to take weights of 16-bit inputs from. Such rows find their norm again, and
// are left to the plain kernel.
constexpr float kMostLse = 1024;

KEEL_DEVICE float sum_of_lanes(float x, int lanes) {
  for (int step = lanes / 2; step > 0; step /= 2) x += __shfl_xor_sync(~0u, x, step);
  return x;
}

KEEL_DEVICE float scale_of_row(const Call& f, std::int64_t b, std::int64_t h, std::int64_t row) {
  return f.scale_tensor ? load_row_value<float>(f.scale_tensor, b, h, row) : static_cast<float>(f.scale);
}

template <class Element, class Stored>
__global__ void __launch_bounds__(kPassThreads) prepare_rows(const __grid_constant__ BackwardArguments a) {
  const Call& f = a.call.forward;
  const Sequences& s = f.sequences;
  const std::int64_t id = std::int64_t{blockIdx.x} * kPassThreads + threadIdx.x, rows = s.batch * f.q_heads * s.n_q;
  const std::int64_t threads = std::int64_t{gridDim.x} * kPassThreads;
  for (std::int64_t i = id; i < s.batch * f.q_heads * a.cut.query_slots; i += threads) a.turn[i] = 0;
  if (id == 0) *a.next = 0, *a.odd_dq.count = 0, *a.odd_dk.count = 0, *a.odd_dv.count = 0;

  const std::int64_t item = std::min(id / a.lanes, rows - 1), head = item / s.n_q, b = head / f.q_heads;
  const std::int64_t h = head % f.q_heads, row = item % s.n_q;
  const Place place = place_of_row(s, b, row);
  const int column = static_cast<int>(id % a.lanes) * 8;
  const float lse = load_row_value<float>(a.call.lse, b, h, row);
  const bool masked = place.index >= place.of.q_len || lse == -INFINITY;
  float sum = 0;
  if (!masked && column < f.d_v) {
    float out[8], dout[8];
    load_8<Element>(a.call.out, place_in(a.call.out, b, h, row, column), out);
    load_8<Element>(a.call.dout, place_in(a.call.dout, b, h, row, column), dout);
#pragma unroll
    for (int c = 0; c < 8; ++c) sum = fmaf(out[c], dout[c], sum);
  }
  sum = sum_of_lanes(sum, a.lanes);
  const bool owns = column == 0 && id / a.lanes < rows;
  const bool coarse = !masked && s.has_all_keys() && fabsf(lse) > kMostLse && isfinite(lse);
  if (owns) {
    const float delta = masked ? 0.0f : sum - (a.call.dlse ? load_row_value<float>(a.call.dlse, b, h, row) : 0.0f);
    const std::int64_t slot = head * a.cut.query_slots +
                              first_slot(s, static_cast<int>(place.entry), place.of.q_begin, a.cut.query_block) +
                              place.index / a.cut.query_block;
    const std::int64_t to = slot * a.cut.query_block + place.index % a.cut.query_block;
    const bool number = !coarse && isfinite(lse);
    a.lse_log2[to] = masked ? INFINITY : number ? lse * 1.4426950408889634f : NAN;
    a.delta[to] = delta;
    if (a.scale != nullptr) a.scale[to] = scale_of_row(f, b, h, row);
    a.rows[item] = {{masked ? 0.0f : lse, masked ? 0.0f : 1.0f}, delta};
  }
  for (unsigned left = __ballot_sync(~0u, owns && coarse); left != 0; left &= left - 1) {
    const int from = __ffs(static_cast<int>(left)) - 1;
    const std::int64_t odd = __shfl_sync(~0u, item, from), odd_head = odd / s.n_q;
    const Place at = place_of_row(s, odd_head / f.q_heads, odd % s.n_q);
    const ScoreRow<Stored> scores(f, at.of, odd_head % f.q_heads, at.index);
    const RowNorm<float> norm = norm_of(f, scores, odd_head % f.q_heads, Warp());
    if ((threadIdx.x & 31) == 0) a.rows[odd].p = norm;
  }
}

// dq from the workspace to its rows. A thread has 8 columns of two rows, 8 apart.
template <class Element>
__global__ void __launch_bounds__(kPassThreads) finish_dq(const __grid_constant__ BackwardArguments a) {
  const Call& f = a.call.forward;
  const Sequences& s = f.sequences;
  const int size = a.cut.query_block, pairs = size / 2, d = static_cast<int>(f.d_k);
  const std::int64_t id = std::int64_t{blockIdx.x} * kPassThreads + threadIdx.x;
  const std::int64_t slots = s.batch * f.q_heads * a.cut.query_slots;
  const std::int64_t slot = std::min(id / a.lanes / pairs, slots - 1), head = slot / a.cut.query_slots;
  const bool exists = id / a.lanes / pairs < slots;
  const std::int64_t b = head / f.q_heads, h = head % f.q_heads;
  const int in_head = static_cast<int>(slot % a.cut.query_slots);
  const BlockIndex block =
      s.packed() ? query_block_in_slot(s, in_head, size) : BlockIndex{static_cast<int>(b), 0, in_head};
  const Entry entry = s.entry(block.entry);
  const int column = static_cast<int>(id % a.lanes) * 8, pair = static_cast<int>(id / a.lanes % pairs);
  const int row = pair / 8 * 16 + pair % 8;
  float x[2][8] = {};
  if (exists && column < d) {
    const float4* const from = reinterpret_cast<const float4*>(a.dq + slot * (size * d) + dq_place(row, column, d));
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float4 four = from[i];
      x[0][2 * i] = four.x, x[0][2 * i + 1] = four.y;
      x[1][2 * i] = four.z, x[1][2 * i + 1] = four.w;
    }
  }
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const std::int64_t i = std::int64_t{block.block} * size + row + 8 * r, at = entry.q_begin + i;
    const bool inside = exists && i < entry.q_rows;
    float zero = 0;  // NaN where x has NaN or infinity
#pragma unroll
    for (int c = 0; c < 8; ++c) zero = fmaf(x[r][c], 0.0f, zero);
    zero = sum_of_lanes(zero, a.lanes);
    if (!inside) continue;
    const std::int64_t item = head * s.n_q + at;
    const KeyRange keys = s.key_range(entry, i);
    const bool sees = keys.begin < keys.end && !a.rows[item].masked();
    if (sees && zero != 0.0f) {
      if (column == 0) note(a.odd_dq, item);
      continue;
    }
    if (column >= d) continue;
    const float scale = a.scale != nullptr ? 1.0f : scale_of_row(f, b, h, at);
#pragma unroll
    for (int c = 0; c < 8; ++c) x[r][c] = sees ? x[r][c] * scale : 0.0f;
    put_8<Element>(a.call.dq, a.call.accumulate, place_in(a.call.dq, b, h, at, column), x[r]);
  }
}

// Rows of gradients that were noted, a warp each.
template <class Stored>
__global__ void __launch_bounds__(kPassThreads) compute_gradients_again(const __grid_constant__ BackwardArguments a) {
  const unsigned warps = gridDim.x * (kPassThreads / 32), warp = blockIdx.x * (kPassThreads / 32) + threadIdx.x / 32;
  const auto again = [&](const OddGradients& odd, const auto& work) {
    for (unsigned i = warp; i < *odd.count; i += warps) work(odd.rows[i], Warp());
  };
  if (warp < *a.odd_dq.count) again(a.odd_dq, QueryGradients<Stored>{a.call, a.rows});
  if (warp < *a.odd_dk.count) again(a.odd_dk, KeyGradients<Stored, false>{a.call, a.rows});
  if (warp < *a.odd_dv.count) again(a.odd_dv, KeyGradients<Stored, true>{a.call, a.rows});
}

}  // namespace keel::cuda::hopper
