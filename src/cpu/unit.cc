#include "cpu/unit.h"

namespace keel::cpu {

const UnitKernels& unit_kernels(MatrixUnit unit) {
  static const UnitKernels dot = {
      "avx512_bf16", 12, 512, forward_kernel_avx512_bf16(), backward_kernel_avx512_bf16(), &peak_avx512_bf16};
  static const UnitKernels tiles = {"amx", 32, 512, forward_kernel_amx(), backward_kernel_amx(), &peak_amx};
  return unit == MatrixUnit::amx ? tiles : dot;
}

const UnitKernels& split_kernels() {
  static const UnitKernels split = {"amx", 32, 256, forward_kernel_amx_split(), {}, &peak_amx, DType::f32, 6};
  return split;
}

}  // namespace keel::cpu
