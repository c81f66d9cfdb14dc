#include "cuda/hopper/kernels.cuh"

namespace keel::cuda::hopper {

KEEL_SINGLE_TERM_KERNELS_FOR(64)

}  // namespace keel::cuda::hopper
