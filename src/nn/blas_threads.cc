#include "nn/blas_threads.h"

#include <mutex>

// Weak: present only with OpenBLAS, and with the OpenMP library it uses.
extern "C" {
int openblas_get_parallel() __attribute__((weak));
int openblas_get_num_threads() __attribute__((weak));
void openblas_set_num_threads(int threads) __attribute__((weak));
int omp_get_max_threads() __attribute__((weak));
void omp_set_num_threads(int threads) __attribute__((weak));
}

namespace keel::nn {
namespace {

enum class Threads { none, own, openmp };

Threads threads_of_blas() {
  static const Threads found = [] {
    constexpr int kOwn = 1, kOpenMp = 2;  // OpenBLAS's numbers
    const int parallel = openblas_get_parallel != nullptr ? openblas_get_parallel() : 0;
    if (parallel == kOwn && openblas_get_num_threads != nullptr && openblas_set_num_threads != nullptr) {
      return Threads::own;
    }
    if (parallel == kOpenMp && omp_get_max_threads != nullptr && omp_set_num_threads != nullptr) return Threads::openmp;
    return Threads::none;
  }();
  return found;
}

std::mutex mutex;
int holders = 0;
int before = 1;  // the number of threads when the first was created

}  // namespace

OneThreadInBlas::OneThreadInBlas() {
  if (threads_of_blas() != Threads::own) return;
  const std::lock_guard lock(mutex);
  if (holders++ > 0) return;
  before = openblas_get_num_threads();
  if (before != 1) openblas_set_num_threads(1);
}

OneThreadInBlas::~OneThreadInBlas() {
  if (threads_of_blas() != Threads::own) return;
  const std::lock_guard lock(mutex);
  if (--holders > 0) return;
  if (before != 1 && openblas_get_num_threads() == 1) openblas_set_num_threads(before);
}

OneThreadOfOpenMp::OneThreadOfOpenMp() {
  if (threads_of_blas() != Threads::openmp) return;
  before_ = omp_get_max_threads();
  if (before_ != 1) omp_set_num_threads(1);
}

OneThreadOfOpenMp::~OneThreadOfOpenMp() {
  if (before_ != 1) omp_set_num_threads(before_);
}

}  // namespace keel::nn
