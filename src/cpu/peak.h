#pragma once

#include <cstdint>

// The limits of a core, as loops to be timed.
namespace keel::cpu {

// Runs about `steps` rounds of independent fused multiply-adds that touch registers only, in f32 or f64 on the given
// SIMD target, and returns the floating-point operations done. The rate is the kernels' upper bound.
double fma_loop_f32(std::int64_t target, std::int64_t steps);
double fma_loop_f64(std::int64_t target, std::int64_t steps);

// Reads `bytes` bytes (a multiple of 4096) once, with the target's vectors, and returns a checksum.
std::uint64_t read_loop(std::int64_t target, const void* data, std::int64_t bytes);

// Adds `bytes` bytes (likewise) of integers at `from` to those at `to`: two bytes read for one written.
void update_loop(std::int64_t target, void* to, const void* from, std::int64_t bytes);

}  // namespace keel::cpu
