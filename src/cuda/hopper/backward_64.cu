#include "cuda/hopper/backward_kernels.cuh"

namespace keel::cuda::hopper {

KEEL_BACKWARD_KERNELS_FOR(64, false)

}  // namespace keel::cuda::hopper
