#pragma once

#include "cpu/backward.h"
#include "cpu/forward.h"
#include "runtime/machine.h"

// The kernels that multiply on a matrix unit. They differ from those of the SIMD targets in their products alone:
// operands stay bf16, so do the weights and the gradients of the scores once they are known, and every sum is in f32.
// f32 is multiplied in three parts of bf16 each, so are the weights, and nothing is rounded to bf16.
namespace keel::cpu {

struct UnitKernels {
  const char* name = "";         // as plans show it
  std::int64_t row_granule = 0;  // blocks of rows are multiples of it
  std::int64_t key_block = 0;    // keys whose scores, for the rows that go together, stay in the first-level cache
  ForwardKernel forward;
  BackwardKernel backward;                       // of bf16 alone
  double (*peak)(std::int64_t steps) = nullptr;  // as the loops of peak.h
  DType dtype = DType::bf16;                     // of q, k and v
  std::int64_t item = 2;                         // bytes of an element of packed k and v
};

// Of a unit that machine() has.
const UnitKernels& unit_kernels(MatrixUnit unit);

// For f32, on AMX if machine() has it.
const UnitKernels& split_kernels();

ForwardKernel forward_kernel_avx512_bf16();
BackwardKernel backward_kernel_avx512_bf16();
ForwardKernel forward_kernel_amx();
BackwardKernel backward_kernel_amx();
ForwardKernel forward_kernel_amx_split();
double peak_avx512_bf16(std::int64_t steps);
double peak_amx(std::int64_t steps);

}  // namespace keel::cpu
