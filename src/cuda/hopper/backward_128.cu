#include "cuda/hopper/backward_kernels.cuh"

namespace keel::cuda::hopper {

KEEL_BACKWARD_KERNELS_FOR(128, false)
KEEL_BACKWARD_KERNELS_FOR(128, true)

}  // namespace keel::cuda::hopper
