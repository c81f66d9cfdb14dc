#pragma once

// A product is computed on the thread that asks for it (gemm.h cuts it for several), and OpenBLAS's number of threads
// is everyone's in the process: it must be afterwards what it was before. How OpenBLAS is kept to one thread depends on
// how it was built. Any other BLAS is left as it is (docs/nn.md).
namespace keel::nn {

// OpenBLAS with threads of its own has one number for the process, and no call sets it for one thread alone:
// openblas_set_num_threads_local sets this one too. It is 1 while any of these exists; the last to go restores it,
// unless somebody has set another number in the meantime.
class OneThreadInBlas {
 public:
  OneThreadInBlas();
  ~OneThreadInBlas();
  OneThreadInBlas(const OneThreadInBlas&) = delete;
  OneThreadInBlas& operator=(const OneThreadInBlas&) = delete;
};

// OpenBLAS over OpenMP asks OpenMP how many threads the calling thread may use. That is 1 while this exists.
class OneThreadOfOpenMp {
 public:
  OneThreadOfOpenMp();
  ~OneThreadOfOpenMp();
  OneThreadOfOpenMp(const OneThreadOfOpenMp&) = delete;
  OneThreadOfOpenMp& operator=(const OneThreadOfOpenMp&) = delete;

 private:
  int before_ = 1;
};

}  // namespace keel::nn
