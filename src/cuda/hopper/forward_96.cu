#include "cuda/hopper/kernels.cuh"

namespace keel::cuda::hopper {

KEEL_KERNELS_FOR(96)

}  // namespace keel::cuda::hopper
