#include "cuda/hopper/kernels.cuh"

namespace keel::cuda::hopper {

KEEL_KERNELS_FOR(192)

}  // namespace keel::cuda::hopper
