#pragma once

#include <cstdint>

namespace keel::nn {

// c (m, n) = a·b + row, each matrix dense along its rows; `lda` … are the distances between rows. `transpose_a` says
// that a is stored (k, m), likewise b. `row` (n) is added to every row of c where it is given.
template <class T>
struct Gemm {
  std::int64_t m = 0, n = 0, k = 0;
  bool transpose_a = false, transpose_b = false;
  std::int64_t lda = 1, ldb = 1, ldc = 1;
  const T* row = nullptr;
};

// One matrix of a batch.
template <class T>
struct GemmMatrices {
  const T* a = nullptr;
  const T* b = nullptr;
  T* c = nullptr;
};

// A batch of products of one shape by CBLAS. It is cut into tasks by the shape alone and BLAS itself is kept to one
// thread, so the bits do not depend on the number of threads. `at(i)` gives matrix i.
template <class T, class At>
void gemm(const Gemm<T>& g, std::int64_t batch, const At& at);

// What one task does: rows or columns [begin, end) of c.
template <class T>
void gemm_part(const Gemm<T>& g, const GemmMatrices<T>& x, bool by_rows, std::int64_t begin, std::int64_t end);

// How c is cut: into parts of `part` rows, or columns where there are more of those.
struct GemmCut {
  bool by_rows = true;
  std::int64_t part = 1, parts = 1;
};
GemmCut cut_gemm(std::int64_t m, std::int64_t n, std::int64_t k);

// Raises where a size is past what CBLAS counts to.
void check_gemm(const char* operation, std::int64_t m, std::int64_t n, std::int64_t k);

}  // namespace keel::nn

#include "nn/loops.h"

namespace keel::nn {

template <class T, class At>
void gemm(const Gemm<T>& g, std::int64_t batch, const At& at) {
  if (g.m == 0 || g.n == 0 || batch == 0) return;
  const GemmCut cut = cut_gemm(g.m, g.n, g.k);
  const std::int64_t whole = cut.by_rows ? g.m : g.n;
  // Small products of a batch share a task.
  const std::int64_t work = std::max<std::int64_t>(1, g.m * g.n * std::max<std::int64_t>(g.k, 1) / cut.parts);
  for_blocks(batch * cut.parts, std::max<std::int64_t>(1, (1 << 20) / work),
             [&](std::int64_t first, std::int64_t last) {
               for (std::int64_t task = first; task < last; ++task) {
                 const std::int64_t begin = task % cut.parts * cut.part;
                 gemm_part(g, at(task / cut.parts), cut.by_rows, begin, std::min(whole, begin + cut.part));
               }
             });
}

}  // namespace keel::nn
