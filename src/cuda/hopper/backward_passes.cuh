#pragma once

#include "cuda/hopper/gradient_rows.cuh"
#include "cuda/plain_reduced.h"

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

// A thread's part of a row: 8 columns.
struct RowPart {
  int head, row, column;  // row: of the tensor in prepare_row(), of the entry in finish_row()
  bool owns;              // else another thread has the row
};

// By a warp. Apart, as its registers would be taken from all rows.
template <class Stored>
__device__ __noinline__ RowNorm<float> norm_of_row(const Call& f, int b, int h, int row) {
  const Place at = place_of_row(f.sequences, b, row);
  return norm_of(f, ScoreRow<Stored>(f, at.of, h, at.index), h, Warp());
}

// All threads of a warp come here together.
template <class Element, class Stored>
KEEL_DEVICE void prepare_row(const BackwardArguments& a, const RowPart& part, const Place& place) {
  const Call& f = a.call.forward;
  const Sequences& s = f.sequences;
  const std::int64_t b = place.of.batch, h = part.head, row = part.row, head = b * f.q_heads + h;
  const std::int64_t item = head * s.n_q + row;
  const float lse = load_row_value<float>(a.call.lse, b, h, row);
  const bool masked = place.index >= place.of.q_len || lse == -INFINITY;
  float sum = 0;
  if (!masked && part.column < f.d_v) {
    float out[8], dout[8];
    load_8<Element>(a.call.out, place_in(a.call.out, b, h, row, part.column), out);
    load_8<Element>(a.call.dout, place_in(a.call.dout, b, h, row, part.column), dout);
#pragma unroll
    for (int c = 0; c < 8; ++c) sum = fmaf(out[c], dout[c], sum);
  }
  sum = sum_of_lanes(sum, a.lanes);
  const bool owns = part.column == 0 && part.owns;
  const bool coarse = !masked && s.has_all_keys() && fabsf(lse) > kMostLse && isfinite(lse);
  if (owns) {
    const float delta = masked ? 0.0f : sum - (a.call.dlse ? load_row_value<float>(a.call.dlse, b, h, row) : 0.0f);
    const int index = static_cast<int>(place.index), entry = static_cast<int>(place.entry), size = a.cut.query_block;
    const std::int64_t slot =
        head * a.cut.query_slots + first_slot(s, entry, place.of.q_begin, size) + index / size;
    const std::int64_t to = slot * size + index % size;
    const bool number = !coarse && isfinite(lse);
    a.lse_log2[to] = masked ? INFINITY : number ? lse * 1.4426950408889634f : NAN;
    a.delta[to] = delta;
    if (a.scale != nullptr) a.scale[to] = scale_of_row(f, b, h, row);
    a.rows[item] = {{masked ? 0.0f : lse, masked ? 0.0f : 1.0f}, delta};
  }
  for (unsigned left = __ballot_sync(~0u, owns && coarse); left != 0; left &= left - 1) {
    const int from = __ffs(static_cast<int>(left)) - 1;
    const RowNorm<float> norm =
        norm_of_row<Stored>(f, static_cast<int>(b), part.head, __shfl_sync(~0u, part.row, from));
    if ((threadIdx.x & 31) == from) a.rows[item].p = norm;
  }
}

// x: the row's sum of dx·k. All threads of a warp come here together.
template <class Element>
KEEL_DEVICE void finish_row(const BackwardArguments& a, const RowPart& part, const Entry& entry, float (&x)[8]) {
  const Call& f = a.call.forward;
  const Sequences& s = f.sequences;
  const std::int64_t b = entry.batch, h = part.head, i = part.row, at = entry.q_begin + i;
  const bool inside = i < entry.q_rows, has_columns = part.column < f.d_k;
  float zero = 0;  // NaN where x has NaN or infinity
#pragma unroll
  for (int c = 0; c < 8; ++c) zero = fmaf(x[c], 0.0f, zero);
  zero = sum_of_lanes(zero, a.lanes);
  float by_q = 0;
  if (a.dscale != nullptr) {  // dscale_i = Σ_j dx·(q_i·k_j) = (Σ_j dx·k_j)·q_i
    float q[8] = {};
    if (inside && has_columns) load_8<Element>(f.q, place_in(f.q, b, h, at, part.column), q);
#pragma unroll
    for (int c = 0; c < 8; ++c) by_q = fmaf(x[c], q[c], by_q);
    by_q = sum_of_lanes(by_q, a.lanes);
  }
  if (!inside) return;
  const std::int64_t item = (b * f.q_heads + h) * s.n_q + at;
  const KeyRange keys = s.key_range(entry, i);
  const bool sees = keys.begin < keys.end && !a.rows[item].masked();
  if (sees && zero != 0.0f) {
    if (part.column == 0) note(a.odd_dq, item);
    return;
  }
  if (a.dscale != nullptr && part.column == 0) a.dscale[item] = sees ? by_q : 0.0f;
  if (!has_columns || !a.call.dq) return;
  const float scale = scale_of_row(f, b, h, at);
#pragma unroll
  for (int c = 0; c < 8; ++c) x[c] = sees ? x[c] * scale : 0.0f;
  put_8<Element>(a.call.dq, a.call.accumulate, place_in(a.call.dq, b, h, at, part.column), x);
}

// Rows of a head that a block of threads has. Grids are (blocks of rows, heads, batch), as divisions would take longer
// than the memory.
constexpr int kPassRows = 64;

// Rows of the tensors.
template <class Element, class Stored>
__global__ void __launch_bounds__(kPassThreads) prepare_rows(const __grid_constant__ BackwardArguments a) {
  const Call& f = a.call.forward;
  const Sequences& s = f.sequences;
  const int h = blockIdx.y, b = blockIdx.z, n_q = static_cast<int>(s.n_q), together = kPassThreads / a.lanes;
  const std::int64_t head = std::int64_t{b} * gridDim.y + h;
  const int at_once = gridDim.x * kPassThreads;
  for (int i = blockIdx.x * kPassThreads + threadIdx.x; i < a.cut.query_slots; i += at_once) {
    a.turn[head * a.cut.query_slots + i] = 0;
  }
  if (blockIdx.x + h + b == 0 && threadIdx.x == 0) {
    *a.next = 0, *a.odd_dq.count = 0, *a.odd_dk.count = 0, *a.odd_dv.count = 0;
  }
  const std::int64_t block = (std::int64_t{b} * gridDim.y + h) * gridDim.x + blockIdx.x;
  const std::int64_t threads = std::int64_t{gridDim.x} * gridDim.y * gridDim.z * kPassThreads;
  for (std::int64_t t = block * kPassThreads + threadIdx.x; t < a.cut.tasks; t += threads) {
    a.tiles[t] = make_key_tile(s, a.cut, key_task(s, a.cut, static_cast<int>(t)));
  }
  Place place = {b, s.packed() ? Entry{} : s.entry(b), 0};
  const int column = static_cast<int>(threadIdx.x % a.lanes) * 8, end = min(n_q, (blockIdx.x + 1) * kPassRows);
  for (int from = blockIdx.x * kPassRows; from < end; from += together) {
    const int row = from + threadIdx.x / a.lanes, real_row = min(row, n_q - 1);
    if (s.packed()) {
      place = place_of_row(s, b, real_row);
    } else {
      place.index = real_row;
    }
    prepare_row<Element, Stored>(a, {h, real_row, column, row < end}, place);
  }
}

// dq from the workspace to its rows, and what each row gives to dscale. Blocks of 64 rows of the slots; a thread has 8
// columns of two rows, 8 apart.
template <class Element>
__global__ void __launch_bounds__(kPassThreads) finish_dq(const __grid_constant__ BackwardArguments a) {
  const Sequences& s = a.call.forward.sequences;
  const int size = a.cut.query_block, parts = size / kPassRows, d = static_cast<int>(a.call.forward.d_k);
  const int h = blockIdx.y, b = blockIdx.z, in_head = blockIdx.x / parts, part = blockIdx.x % parts;
  const BlockIndex block = s.packed() ? query_block_in_slot(s, in_head, size) : BlockIndex{b, 0, in_head};
  const Entry entry = s.entry(block.entry);
  const std::int64_t slot = (std::int64_t{b} * gridDim.y + h) * a.cut.query_slots + in_head;
  const int column = static_cast<int>(threadIdx.x % a.lanes) * 8;
  for (int pair = threadIdx.x / a.lanes; pair < kPassRows / 2; pair += kPassThreads / a.lanes) {
    const int row = part * kPassRows + pair / 8 * 16 + pair % 8;
    float x[2][8] = {};
    if (column < d) {
      const float4* const from = reinterpret_cast<const float4*>(a.dq + slot * (size * d) + dq_place(row, column, d));
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float4 four = from[i];
        x[0][2 * i] = four.x, x[0][2 * i + 1] = four.y;
        x[1][2 * i] = four.z, x[1][2 * i + 1] = four.w;
      }
    }
    finish_row<Element>(a, {h, block.block * size + row, column, true}, entry, x[0]);
    finish_row<Element>(a, {h, block.block * size + row + 8, column, true}, entry, x[1]);
  }
}

// A row of dbias.
template <class Stored>
struct BiasRows {
  const BackwardArguments& a;

  __device__ void operator()(std::int64_t row, const Warp& lanes) const {
    const Call& f = a.call.forward;
    const Sequences& s = f.sequences;
    const BiasGradients<Stored> element{a.call, a.rows, Reduced(a.call.dbias, {{s.batch, f.q_heads, s.n_q, s.n_k}})};
    for (std::int64_t j = lanes.lane(); j < s.n_k; j += Warp::kCount) element(row * s.n_k + j, OneLane{});
  }
};

// Rows of gradients that were noted, a warp each.
template <class Stored>
__global__ void __launch_bounds__(kPassThreads) compute_gradients_again(const __grid_constant__ BackwardArguments a) {
  const unsigned warps = gridDim.x * (kPassThreads / 32), warp = blockIdx.x * (kPassThreads / 32) + threadIdx.x / 32;
  const auto again = [&](const OddGradients& odd, const auto& work) {
    for (unsigned i = warp; i < *odd.count; i += warps) work(odd.rows[i], Warp());
  };
  if (warp < *a.odd_dq.count && a.call.dq) again(a.odd_dq, QueryGradients<Stored>{a.call, a.rows});
  if (warp < *a.odd_dq.count && a.dscale != nullptr) again(a.odd_dq, ScaleRows<Stored>{a.call, a.rows, a.dscale});
  if (warp < *a.odd_dq.count && a.writes_dbias) again(a.odd_dq, BiasRows<Stored>{a});
  if (warp < *a.odd_dk.count) again(a.odd_dk, KeyGradients<Stored, false>{a.call, a.rows});
  if (warp < *a.odd_dv.count) again(a.odd_dv, KeyGradients<Stored, true>{a.call, a.rows});
}

}  // namespace keel::cuda::hopper
