#pragma once

#include "cuda/hopper/gradient_rows.cuh"
#include "cuda/plain_reduced.h"

// What comes before and after the blocks of keys, at the speed of memory: numbers per row; dq from the workspace; and
// what is computed again.
namespace keel::cuda::hopper {

constexpr int kPassThreads = 256;

// Rows of a head that a block of threads has. Grids are (blocks of rows, heads, batch), as divisions would take longer
// than the memory.
constexpr int kPassRows = 64;

// An lse beyond this is too coarse, in f32, to take weights of 16-bit inputs from. Such rows find their norm again, and
// are left to the plain kernel.
constexpr float kMostLse = 1024;

KEEL_DEVICE float sum_of_lanes(float x, int lanes) {
  for (int step = lanes / 2; step > 0; step /= 2) x += __shfl_xor_sync(~0u, x, step);
  return x;
}

// By a warp. Apart, as its registers would be taken from all rows.
template <class Stored>
__device__ __noinline__ RowNorm<float> norm_of_row(const Call& f, int b, int h, int row) {
  const Place at = place_of_row(f.sequences, b, row);
  return norm_of(f, ScoreRow<Stored>(f, at.of, h, at.index), h, Warp());
}

// Writes the numbers of a row of the tensors, where the thread owns one; sum is that of do·o. All threads of a warp
// come here together.
template <class Stored>
KEEL_DEVICE void prepare_row(const BackwardArguments& a, bool owns, int h, int row, const Place& place, float lse,
                             float sum) {
  const Call& f = a.call.forward;
  const Sequences& s = f.sequences;
  const std::int64_t b = place.of.batch, head = b * f.q_heads + h, item = head * s.n_q + row;
  const bool masked = place.index >= place.of.q_len || lse == -INFINITY;
  const bool coarse = owns && !masked && s.has_all_keys() && fabsf(lse) > kMostLse && isfinite(lse);
  if (owns) {
    const float delta = masked ? 0.0f : sum - (a.call.dlse ? load_row_value<float>(a.call.dlse, b, h, row) : 0.0f);
    const int index = static_cast<int>(place.index), entry = static_cast<int>(place.entry), size = a.cut.query_block;
    const std::int64_t slot = head * a.cut.query_slots + first_slot(s, entry, place.of.q_begin, size) + index / size;
    const std::int64_t to = slot * size + index % size;
    const KeyRange keys = s.key_range(place.of, place.index);
    const bool sees = !masked && keys.begin < keys.end, number = !coarse && isfinite(lse);
    a.lse_log2[to] = !sees ? INFINITY : number ? lse * 1.4426950408889634f : NAN;
    a.delta[to] = delta;
    if (a.scale != nullptr) a.scale[to] = scale_of_row(f, b, h, row);
    a.rows[item] = {{masked ? 0.0f : lse, masked ? 0.0f : 1.0f}, delta};
  }
  for (unsigned left = __ballot_sync(~0u, coarse); left != 0; left &= left - 1) {
    const int from = __ffs(static_cast<int>(left)) - 1;
    const RowNorm<float> norm = norm_of_row<Stored>(f, static_cast<int>(b), h, __shfl_sync(~0u, row, from));
    if ((threadIdx.x & 31) == from) a.rows[item].p = norm;
  }
}

// A thread's part of do·o of rows first, first + kStep, …: 8 columns. All are loaded before any is used.
template <class Element, int kCount, int kStep>
KEEL_DEVICE void multiply_rows(const BackwardArguments& a, int b, int h, int first, int column, float (&sums)[kCount]) {
  const BackwardCall& c = a.call;
  const int last = static_cast<int>(c.forward.sequences.n_q) - 1;
  if (a.whole_rows) {
    uint4 x[kCount], y[kCount];
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const int row = min(first + i * kStep, last);
      const Element* const out = static_cast<const Element*>(c.out.data) + place_in(c.out, b, h, row);
      const Element* const dout = static_cast<const Element*>(c.dout.data) + place_in(c.dout, b, h, row);
      x[i] = *reinterpret_cast<const uint4*>(out + column);
      y[i] = *reinterpret_cast<const uint4*>(dout + column);
    }
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const std::uint32_t xs[4] = {x[i].x, x[i].y, x[i].z, x[i].w}, ys[4] = {y[i].x, y[i].y, y[i].z, y[i].w};
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        const float2 o = ptx::unpack<Element>(xs[k]), g = ptx::unpack<Element>(ys[k]);
        sums[i] = fmaf(o.x, g.x, fmaf(o.y, g.y, sums[i]));
      }
    }
    return;
  }
#pragma unroll 1
  for (int i = 0; i < kCount; ++i) {
    const int row = min(first + i * kStep, last);
    float out[8], dout[8], sum = 0;
    load_8<Element>(c.out, place_in(c.out, b, h, row, column), out);
    load_8<Element>(c.dout, place_in(c.dout, b, h, row, column), dout);
#pragma unroll
    for (int k = 0; k < 8; ++k) sum = fmaf(out[k], dout[k], sum);
#pragma unroll
    for (int k = 0; k < kCount; ++k) sums[k] = k == i ? sum : sums[k];
  }
}

// What the main kernel expects besides numbers of rows.
KEEL_DEVICE void prepare_tasks(const BackwardArguments& a, int h, int b) {
  const Sequences& s = a.call.forward.sequences;
  const std::int64_t head = std::int64_t{b} * gridDim.y + h, block = head * gridDim.x + blockIdx.x;
  for (int i = blockIdx.x * kPassThreads + threadIdx.x; i < a.cut.query_slots; i += gridDim.x * kPassThreads) {
    a.turn[head * a.cut.query_slots + i] = 0;
  }
  const std::int64_t threads = std::int64_t{gridDim.x} * gridDim.y * gridDim.z * kPassThreads;
  for (std::int64_t t = block * kPassThreads + threadIdx.x; t < a.cut.tasks; t += threads) {
    a.tiles[t] = make_key_tile(s, a.cut, key_task(s, a.cut, static_cast<int>(t)));
  }
  if (threadIdx.x != 0 || blockIdx.x != 0) return;
  if (head == 0) *a.next = 0, *a.odd_dq.count = 0, *a.odd_dk.count = 0, *a.odd_dv.count = 0;
}

// Rows of the tensors. Of the kLanes threads that share a row's columns, each of the first few then owns one of their
// rows.
template <class Element, class Stored, int kD>
__global__ void __launch_bounds__(kPassThreads) prepare_rows(const __grid_constant__ BackwardArguments a) {
  constexpr int kLanes = kD / 8, kStep = kPassThreads / kLanes, kCount = kPassRows / kStep;
  static_assert(kCount <= kLanes);
  ptx::let_next_kernel_start();
  const Call& f = a.call.forward;
  const Sequences& s = f.sequences;
  const int h = blockIdx.y, b = blockIdx.z, n_q = static_cast<int>(s.n_q), lane = threadIdx.x % kLanes;
  prepare_tasks(a, h, b);
  const int first = blockIdx.x * kPassRows + threadIdx.x / kLanes, own = first + lane % kCount * kStep;
  const int row = min(own, n_q - 1);
  const float lse = load_row_value<float>(a.call.lse, b, h, row);
  float sums[kCount] = {};
  if (lane * 8 < f.d_v) multiply_rows<Element, kCount, kStep>(a, b, h, first, lane * 8, sums);
  float sum = 0;
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    const float all = sum_of_lanes(sums[i], kLanes);
    sum = lane == i ? all : sum;
  }
  const Place place = s.packed() ? place_of_row(s, b, row) : Place{b, s.entry(b), row};
  prepare_row<Stored>(a, lane < kCount && own < n_q, h, row, place, lse, sum);
}

// What a row of dx·k gives to dscale: dscale_i = Σ_j dx·(q_i·k_j) = (Σ_j dx·k_j)·q_i. `at`: the row's place in q.
template <int kRow, int kCount>
KEEL_DEVICE float times_q(const Strided& q, int d, std::int64_t at, const float (&x)[kCount]) {
  float sum = 0;
#pragma unroll
  for (int j = 0; j < kCount / 2; ++j) {
    const int column = j / 2 * 8 + (threadIdx.x & 3) * 2 + (j & 1);
    if (column < d) sum = fmaf(x[j / 2 * 4 + 2 * kRow + (j & 1)], float_at(q, at + column * q.column), sum);
  }
  return sum_of_quad(sum);
}

// Row i of the entry, which sees keys unless its lse says otherwise. All threads of a warp come here together.
template <class Element, int kRow, int kCount>
KEEL_DEVICE void finish_row(const BackwardArguments& a, const Entry& entry, int h, int i, float lse_log2,
                            float (&x)[kCount]) {
  const Call& f = a.call.forward;
  const int d = static_cast<int>(f.d_k);
  const bool inside = i < entry.q_rows, sees = inside && lse_log2 != INFINITY, first = (threadIdx.x & 3) == 0;
  const std::int64_t b = entry.batch, at = entry.q_begin + i;
  const std::int64_t item = (b * f.q_heads + h) * f.sequences.n_q + at;
  const bool odd = zero_of_row<kRow>(x) != 0.0f && sees;
  if (odd && first) note(a.odd_dq, item);
  if (a.dscale != nullptr) {
    const float sum = times_q<kRow>(f.q, inside ? d : 0, place_in(f.q, b, h, at), x);
    if (first && inside && !odd) a.dscale[item] = sees ? sum : 0.0f;
  }
  if (!a.call.dq) return;
  const float scale = inside ? scale_of_row(f, b, h, at) : 0.0f;
#pragma unroll
  for (int j = 0; j < kCount / 2; ++j) x[j / 2 * 4 + 2 * kRow + (j & 1)] *= scale;
  put_row<Element, kRow>(a.call.dq, a.call.accumulate, d, place_in(a.call.dq, b, h, at), inside && !odd, sees, x);
}

constexpr int kFinishThreads = 128;

// dq from the workspace to its rows, and what each row gives to dscale. Blocks of 64 rows of the slots, which lie as
// accumulators of 128 threads. From the last head to the first: what the main kernel wrote last is still in the cache.
template <class Element, int kD>
__global__ void __launch_bounds__(kFinishThreads) finish_dq(const __grid_constant__ BackwardArguments a) {
  ptx::let_next_kernel_start();
  ptx::wait_for_last_kernel();
  const Sequences& s = a.call.forward.sequences;
  const int size = a.cut.query_block, parts = size / kPassRows, d = static_cast<int>(a.call.forward.d_k);
  const int h = gridDim.y - 1 - blockIdx.y, b = gridDim.z - 1 - blockIdx.z;
  const int in_head = blockIdx.x / parts, part = blockIdx.x % parts;
  const std::int64_t slot = (std::int64_t{b} * gridDim.y + h) * a.cut.query_slots + in_head;
  const std::int64_t first_row = slot * size + part * kPassRows;  // in slots
  const int row = threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4;
  const float4* const from =
      reinterpret_cast<const float4*>(a.dq + first_row * d + dq_place(row, threadIdx.x % 4 * 2, d));
  float x[kD / 2];
#pragma unroll
  for (int j = 0; j < kD / 8; ++j) {
    const float4 four = 8 * j < d ? __ldcs(from + j * kFinishThreads) : make_float4(0, 0, 0, 0);
    x[4 * j] = four.x, x[4 * j + 1] = four.y, x[4 * j + 2] = four.z, x[4 * j + 3] = four.w;
  }
  const float lse[2] = {a.lse_log2[first_row + row], a.lse_log2[first_row + row + 8]};
  const BlockIndex block = s.packed() ? query_block_in_slot(s, in_head, size) : BlockIndex{b, 0, in_head};
  const Entry entry = s.entry(block.entry);
  const int i = block.block * size + part * kPassRows + row;
  finish_row<Element, 0>(a, entry, h, i, lse[0], x);
  finish_row<Element, 1>(a, entry, h, i + 8, lse[1], x);
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
  ptx::wait_for_last_kernel();
  const unsigned warps = gridDim.x * (kPassThreads / 32), warp = blockIdx.x * (kPassThreads / 32) + threadIdx.x / 32;
  const auto again = [&](const OddGradients& odd, const auto& work) {
    for (unsigned i = warp; i < *odd.count; i += warps) work(odd.rows[i], Warp());
  };
  if (warp < *a.odd_dq.count && a.call.dq) again(a.odd_dq, QueryGradients<Stored>{a.call, a.rows});
  if (warp < *a.odd_dq.count && a.dscale != nullptr) again(a.odd_dq, ScaleRows<Stored>{a.call, a.rows, a.dscale});
  if (warp < *a.odd_dq.count && a.bias == BiasSums::pairs) again(a.odd_dq, BiasRows<Stored>{a});
  if (warp < *a.odd_dk.count) again(a.odd_dk, KeyGradients<Stored, false>{a.call, a.rows});
  if (warp < *a.odd_dv.count) again(a.odd_dv, KeyGradients<Stored, true>{a.call, a.rows});
}

constexpr int kSinkThreads = 1024;

// dsinks from the numbers of the rows: a block of threads per query head, which adds them in one order.
__global__ void __launch_bounds__(kSinkThreads) sum_sinks(const __grid_constant__ BackwardArguments a) {
  __shared__ double sums[kSinkThreads / 32];
  const Call& f = a.call.forward;
  const std::int64_t h = blockIdx.x, n_q = f.sequences.n_q;
  const auto sink = load_row_value<double>(f.sinks, 0, h, 0);
  LongSum own;
  for (std::int64_t r = threadIdx.x; r < f.sequences.batch * n_q; r += kSinkThreads) {
    own.add(sink_gradient(sink, a.rows[(r / n_q * f.q_heads + h) * n_q + r % n_q]));
  }
  static_assert(kSinkThreads == 32 * 32);
  const Warp warp;
  const double part = warp.sum(own.value());
  if (warp.lane() == 0) sums[threadIdx.x / 32] = part;
  __syncthreads();
  const double all = warp.sum(sums[warp.lane()]);
  if (threadIdx.x == 0) put_gradient(a.call.dsinks, a.call.accumulate, place_in(a.call.dsinks, 0, h, 0), all);
}

}  // namespace keel::cuda::hopper
