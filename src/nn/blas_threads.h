#pragma once

// A product is computed on the calling thread (gemm.h splits it among several), and OpenBLAS's number of threads
// belongs to the whole process: it must be restored afterwards. How OpenBLAS is kept to one thread depends on how it
// was built. Any other BLAS is left alone (docs/nn.md).
namespace keel::nn {

// OpenBLAS with its own threads has one number for the process, and no call sets it for a single thread:
// openblas_set_num_threads_local sets the same one. It is 1 while any of these exists; the last one destroyed restores
// it, unless another number has been set in the meantime.
class OneThreadInBlas {
 public:
  [[nodiscard]] OneThreadInBlas();
  ~OneThreadInBlas();
  OneThreadInBlas(const OneThreadInBlas&) = delete;
  OneThreadInBlas& operator=(const OneThreadInBlas&) = delete;
};

// OpenBLAS built with OpenMP asks OpenMP how many threads the calling thread may use. That is 1 while this exists.
class OneThreadOfOpenMp {
 public:
  [[nodiscard]] OneThreadOfOpenMp();
  ~OneThreadOfOpenMp();
  OneThreadOfOpenMp(const OneThreadOfOpenMp&) = delete;
  OneThreadOfOpenMp& operator=(const OneThreadOfOpenMp&) = delete;

 private:
  int before_ = 1;
};

}  // namespace keel::nn
