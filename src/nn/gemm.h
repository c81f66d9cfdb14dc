#pragma once

#include <algorithm>
#include <cstdint>

#include "nn/blas_threads.h"
#include "nn/loops.h"

// Batches of matrix products by CBLAS. Each is split into tasks by its shape alone and BLAS is kept to one
// thread meanwhile, so the bits do not depend on the number of threads.
namespace keel::nn {

// c (m, n) = a·b + row, each matrix dense along its rows; `lda` … are the distances between rows. `transpose_a` says
// that a is stored (k, m), likewise b. `row` (n), if given, is added to every row of c; with `add`, the product is
// added to what c holds.
template <class T>
struct Gemm {
  std::int64_t m = 0, n = 0, k = 0;
  bool transpose_a = false, transpose_b = false;
  std::int64_t lda = 1, ldb = 1, ldc = 1;
  const T* row = nullptr;
  bool add = false;
};

// One product of a batch.
template <class T>
struct GemmMatrices {
  const T* a = nullptr;
  const T* b = nullptr;
  T* c = nullptr;
};

// Raises if a size is too large for CBLAS.
void check_gemm(const char* operation, std::int64_t m, std::int64_t n, std::int64_t k);

// How c is split: into parts of `part` rows, or of columns if there are more of those.
struct GemmCut {
  bool by_rows = true;
  std::int64_t part = 1, parts = 1;
};
GemmCut cut_gemm(std::int64_t m, std::int64_t n, std::int64_t k);

// What one task does: rows or columns [begin, end) of c.
template <class T>
void gemm_part(const Gemm<T>& g, const GemmMatrices<T>& x, bool by_rows, std::int64_t begin, std::int64_t end);

// `at(i)` gives the matrices of product i.
template <class T, class At>
void gemm(const Gemm<T>& g, std::int64_t batch, const At& at) {
  if (g.m == 0 || g.n == 0) return;
  const GemmCut cut = cut_gemm(g.m, g.n, g.k);
  const std::int64_t whole = cut.by_rows ? g.m : g.n;
  // Small products share a task.
  const double work =
      static_cast<double>(g.m) * static_cast<double>(g.n) * static_cast<double>(g.k) / static_cast<double>(cut.parts);
  const std::int64_t together = std::max<std::int64_t>(1, static_cast<std::int64_t>(0x1p20 / std::max(work, 1.0)));
  const OneThreadInBlas alone;
  for_blocks(batch * cut.parts, together, [&](std::int64_t first, std::int64_t last) {
    const OneThreadOfOpenMp alone_here;
    for (std::int64_t task = first; task < last; ++task) {
      const std::int64_t begin = task % cut.parts * cut.part;
      gemm_part(g, at(task / cut.parts), cut.by_rows, begin, std::min(whole, begin + cut.part));
    }
  });
}

}  // namespace keel::nn
