#pragma once

#include <cstdint>

// What runs on a GPU is written for any number of lanes that work on one thing together: those of a warp, or one, which
// is how a CPU can run it too.
#if defined(__CUDACC__)
#define KEEL_HD __host__ __device__
#else
#define KEEL_HD
#endif
#if defined(__CUDA_ARCH__)
#define KEEL_UNROLL _Pragma("unroll")
#else
#define KEEL_UNROLL
#endif

namespace keel::cuda {

// The larger; NaN is sticky.
template <class T>
KEEL_HD T larger_of(T a, T b) {
  return b != b || b > a ? b : a;
}

// All lanes must come to sum(), max(), broadcast(), which() and sync() together. What these return is the same in all.
struct OneLane {
  static constexpr int kCount = 1;

  KEEL_HD int lane() const { return 0; }
  template <class T>
  KEEL_HD T sum(T x) const {
    return x;
  }
  template <class T>
  KEEL_HD T max(T x) const {  // NaN is sticky
    return x;
  }
  template <class T>
  KEEL_HD T broadcast(T x, int) const {
    return x;
  }
  KEEL_HD std::uint32_t which(bool x) const { return x ? 1 : 0; }  // a bit per lane
  KEEL_HD void sync() const {}  // what a lane reads before it, no other has overwritten yet
};

#if defined(__CUDACC__)
// A whole warp, converged. On the host it means nothing.
struct Warp {
  static constexpr int kCount = 32;
  static constexpr unsigned kAll = 0xFFFFFFFFu;

  KEEL_HD int lane() const {
#if defined(__CUDA_ARCH__)
    return static_cast<int>(threadIdx.x % kCount);
#else
    return 0;
#endif
  }
  template <class T>
  KEEL_HD T broadcast(T x, [[maybe_unused]] int lane) const {
#if defined(__CUDA_ARCH__)
    return __shfl_sync(kAll, x, lane);
#else
    return x;
#endif
  }
  template <class T>
  KEEL_HD T sum(T x) const {
    for (int step = kCount / 2; step > 0; step /= 2) x += exchanged(x, step);
    return x;
  }
  template <class T>
  KEEL_HD T max(T x) const {
    for (int step = kCount / 2; step > 0; step /= 2) x = larger_of(x, exchanged(x, step));
    return x;
  }
  KEEL_HD std::uint32_t which(bool x) const {
#if defined(__CUDA_ARCH__)
    return __ballot_sync(kAll, x);
#else
    return x ? 1 : 0;
#endif
  }
  KEEL_HD void sync() const {
#if defined(__CUDA_ARCH__)
    __syncwarp();
#endif
  }

 private:
  template <class T>
  KEEL_HD static T exchanged(T x, [[maybe_unused]] int step) {  // with the lane whose number differs in bit `step`
#if defined(__CUDA_ARCH__)
    return __shfl_xor_sync(kAll, x, step);
#else
    return x;
#endif
  }
};
#endif

}  // namespace keel::cuda
