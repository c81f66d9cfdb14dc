#pragma once

#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

// Thin wrappers over the instructions of Hopper (sm_90a) that the kernels use: barriers in shared memory, copies of
// tiles by the tensor memory accelerator, warpgroup matrix products. Nothing here knows about attention.
namespace keel::cuda::ptx {

#define KEEL_DEVICE __device__ __forceinline__

KEEL_DEVICE std::uint32_t shared_address(const void* p) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(p));
}

// ---- Barriers that count arrivals and bytes, and flip a phase bit when both are complete.
KEEL_DEVICE void init_barrier(std::uint32_t barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals));
}
KEEL_DEVICE void publish_barriers() { asm volatile("fence.mbarrier_init.release.cluster;"); }
KEEL_DEVICE void arrive(std::uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
KEEL_DEVICE void arrive_expecting(std::uint32_t barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}
KEEL_DEVICE bool has_flipped(std::uint32_t barrier, int phase) {
  std::uint32_t done;
  asm volatile(
      "{\n.reg .pred p;\n"
      "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
      "selp.b32 %0, 1, 0, p;\n}"
      : "=r"(done)
      : "r"(barrier), "r"(phase)
      : "memory");
  return done != 0;
}
KEEL_DEVICE void wait(std::uint32_t barrier, int phase) {
  while (!has_flipped(barrier, phase)) {
  }
}

// ---- Named barriers of a CTA, and registers handed from one warpgroup to another.
KEEL_DEVICE void sync(int barrier, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}
KEEL_DEVICE void signal(int barrier, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}
template <int kRegisters>
KEEL_DEVICE void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
KEEL_DEVICE void give_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

// ---- Tiles of a tensor map, between global and shared memory. What lies outside the tensor reads as 0 and is not
// written.
struct Place {
  int column, inner, row, head, batch;  // coordinates of the tile's first element, fastest dimension first
};
KEEL_DEVICE void load_tile(std::uint32_t to, const CUtensorMap& map, std::uint32_t barrier, const Place& at) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, %6, %7}], "
      "[%2];" ::"r"(to),
      "l"(&map), "r"(barrier), "r"(at.column), "r"(at.inner), "r"(at.row), "r"(at.head), "r"(at.batch)
      : "memory");
}
KEEL_DEVICE void store_tile(const CUtensorMap& map, std::uint32_t from, const Place& at) {
  asm volatile("cp.async.bulk.tensor.5d.global.shared::cta.bulk_group [%0, {%2, %3, %4, %5, %6}], [%1];" ::"l"(&map),
               "r"(from), "r"(at.column), "r"(at.inner), "r"(at.row), "r"(at.head), "r"(at.batch)
               : "memory");
}
// `bytes` from global to shared memory, and back, where the sums are in f32; places and sizes are multiples of 16.
KEEL_DEVICE void load_bytes(std::uint32_t to, const void* from, int bytes, std::uint32_t barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
               "l"(from), "r"(bytes), "r"(barrier)
               : "memory");
}
KEEL_DEVICE void store_bytes(float* to, std::uint32_t from, int bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to), "r"(from), "r"(bytes)
               : "memory");
}
KEEL_DEVICE void add_floats(float* to, std::uint32_t from, int bytes) {
  asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;" ::"l"(to), "r"(from),
               "r"(bytes)
               : "memory");
}
// Four floats from registers.
KEEL_DEVICE void add_4(float* to, const float4& x) {
  asm volatile("red.relaxed.gpu.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(to), "f"(x.x), "f"(x.y), "f"(x.z),
               "f"(x.w)
               : "memory");
}
KEEL_DEVICE void commit_stores() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
KEEL_DEVICE void wait_until_stores_have_read() { asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory"); }
KEEL_DEVICE void wait_until_stored() { asm volatile("cp.async.bulk.wait_group 0;" ::: "memory"); }
// Between copies of global memory and a flag that orders them.
KEEL_DEVICE void order_copies() { asm volatile("fence.proxy.async.global;" ::: "memory"); }
// Before the copy engine or a matrix product reads what ordinary stores wrote to shared memory, in each writing thread;
// and before the copy engine overwrites what ordinary loads, not used yet, have read.
KEEL_DEVICE void publish_to_copies() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
KEEL_DEVICE void prefetch_map(const CUtensorMap& map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

// ---- Flags in global memory.
KEEL_DEVICE int load_flag(const int* flag) {
  int value;
  asm volatile("ld.acquire.gpu.global.b32 %0, [%1];" : "=r"(value) : "l"(flag) : "memory");
  return value;
}
KEEL_DEVICE void store_flag(int* flag, int value) {
  asm volatile("st.release.gpu.global.b32 [%0], %1;" ::"l"(flag), "r"(value) : "memory");
}

// ---- Warpgroup matrix products, which run while their threads go on. The products themselves are in wgmma.cuh.
KEEL_DEVICE void begin_products() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
KEEL_DEVICE void commit_products() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int kLeft>
KEEL_DEVICE void wait_products() {  // until at most kLeft groups are under way
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kLeft) : "memory");
}
// Keeps accumulators where they are while a product is under way; without it the compiler moves them, and waits for the
// product first.
template <int kCount>
KEEL_DEVICE void hold(float (&x)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+f"(x[i])::"memory");
}

// How a product finds an operand in shared memory, in rows of 128 bytes that are swizzled as tiles are loaded.
// As rows of k: 16 columns further is 32 bytes. Transposed: `panel` bytes between groups of 64 columns; 16 rows further
// is 2048 bytes.
constexpr int kSwizzledRows = 1024;  // bytes of the 8 rows after which the pattern repeats
KEEL_DEVICE std::uint64_t operand(std::uint32_t address, int panel) {
  return (static_cast<std::uint64_t>(address & 0x3FFFF) >> 4) | (static_cast<std::uint64_t>(panel >> 4) << 16) |
         (static_cast<std::uint64_t>(kSwizzledRows >> 4) << 32) | (1ull << 62);
}
constexpr std::uint64_t further(int bytes) { return static_cast<std::uint64_t>(bytes) >> 4; }  // to add to an operand

// The same in two parts, of which the second never changes. Where the compiler knows the first to be the same in all
// lanes, it stays out of their registers, and what is further takes one addition.
KEEL_DEVICE std::uint32_t operand_part(std::uint32_t address, int panel) {
  return (address & 0x3FFFF) >> 4 | static_cast<std::uint32_t>(panel >> 4) << 16;
}
KEEL_DEVICE std::uint64_t operand_of(std::uint32_t part) {
  std::uint64_t operand;
  asm("mov.b64 %0, {%1, %2};" : "=l"(operand) : "r"(part), "r"(kSwizzledRows >> 4 | 1 << 30));
  return operand;
}

// ---- A kernel and the one queued behind it. The latter may start when all CTAs of the former have said so, and waits
// for its results where it needs them.
KEEL_DEVICE void let_next_kernel_start() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }
KEEL_DEVICE void wait_for_last_kernel() { asm volatile("griddepcontrol.wait;" ::: "memory"); }

// ---- Arithmetic.
KEEL_DEVICE float exp2_fast(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
KEEL_DEVICE float reciprocal_fast(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
template <class Element>
KEEL_DEVICE std::uint32_t pack(float low, float high);
template <>
KEEL_DEVICE std::uint32_t pack<__nv_bfloat16>(float low, float high) {
  std::uint32_t r;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
  return r;
}
template <>
KEEL_DEVICE std::uint32_t pack<__half>(float low, float high) {
  std::uint32_t r;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
  return r;
}
template <class Element>
KEEL_DEVICE float2 unpack(std::uint32_t pair);
template <>
KEEL_DEVICE float2 unpack<__nv_bfloat16>(std::uint32_t pair) {
  return {__uint_as_float(pair << 16), __uint_as_float(pair & 0xffff0000u)};
}
template <>
KEEL_DEVICE float2 unpack<__half>(std::uint32_t pair) {
  return __half22float2(*reinterpret_cast<const __half2*>(&pair));
}

// A tile of 16 by 16 in accumulator layout, packed, to swizzled rows of 128 bytes from `row` of the panel on, `chunk`
// being the first group of 8 columns.
KEEL_DEVICE void store_16x16(std::uint32_t panel, int row, int chunk, int lane, const std::uint32_t (&x)[4]) {
  const int r = row + (lane & 15), c = chunk + (lane >> 4);
  const std::uint32_t to = panel + r * 128 + ((c ^ (r & 7)) << 4);
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(x[0]), "r"(x[1]),
               "r"(x[2]), "r"(x[3])
               : "memory");
}

// Four matrices of 8 by 8 16-bit values: lane i names the 16 bytes of row i mod 8 of matrix i / 8, and gets of each
// matrix the two values of row lane / 4 that accumulators have there.
KEEL_DEVICE void load_matrices(std::uint32_t row, std::uint32_t (&x)[4]) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
               : "r"(row)
               : "memory");
}

}  // namespace keel::cuda::ptx
