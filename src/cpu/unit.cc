#include "cpu/unit.h"

namespace keel::cpu {

const UnitKernels& unit_kernels(MatrixUnit unit) {
  static const UnitKernels dot = {
      "avx512_bf16", 12, 512, forward_kernel_avx512_bf16(), backward_kernel_avx512_bf16(), &peak_avx512_bf16};
  static const UnitKernels tiles = {"amx", 32, 512, forward_kernel_amx(), backward_kernel_amx(), &peak_amx};
  return unit == MatrixUnit::amx ? tiles : dot;
}

}  // namespace keel::cpu
