#pragma once

#include <vector>

#include "cpu/unit.h"

// The kernels for AMX on tiles of plain C++, so that what they do around the instructions is tested on every machine.
namespace keel::cpu {

// For bf16 or f32, compiled for the least SIMD target and, where the machine has it, for AVX-512.
std::vector<const UnitKernels*> emulated_tiles(DType dtype = DType::bf16);

}  // namespace keel::cpu
