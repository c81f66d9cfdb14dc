#include "cuda/hopper/kernels.cuh"

namespace keel::cuda::hopper {

KEEL_KERNELS_FOR(256)

}  // namespace keel::cuda::hopper
