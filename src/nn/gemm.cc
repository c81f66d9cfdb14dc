#include "nn/gemm.h"

#include <cblas.h>

#include <climits>

#include "nn/check.h"

namespace keel::nn {
namespace {

CBLAS_TRANSPOSE flag(bool transposed) { return transposed ? CblasTrans : CblasNoTrans; }

void blas(const Gemm<float>& g, const GemmMatrices<float>& x, int m, int n, float beta) {
  cblas_sgemm(CblasRowMajor, flag(g.transpose_a), flag(g.transpose_b), m, n, static_cast<int>(g.k), 1.0f, x.a,
              static_cast<int>(g.lda), x.b, static_cast<int>(g.ldb), beta, x.c, static_cast<int>(g.ldc));
}
void blas(const Gemm<double>& g, const GemmMatrices<double>& x, int m, int n, double beta) {
  cblas_dgemm(CblasRowMajor, flag(g.transpose_a), flag(g.transpose_b), m, n, static_cast<int>(g.k), 1.0, x.a,
              static_cast<int>(g.lda), x.b, static_cast<int>(g.ldb), beta, x.c, static_cast<int>(g.ldc));
}

}  // namespace

GemmCut cut_gemm(std::int64_t m, std::int64_t n, std::int64_t k) {
  constexpr std::int64_t kWork = 1 << 22;   // multiply-adds worth a task
  constexpr std::int64_t kNarrowest = 128;  // rows or columns, below which packing the other matrix shows
  constexpr std::int64_t kMost = 64;
  const bool by_rows = m >= n;
  const std::int64_t whole = by_rows ? m : n, other = by_rows ? n : m;
  std::int64_t part = std::max(kNarrowest, (whole + kMost - 1) / kMost);
  part = std::max(part, kWork / std::max<std::int64_t>(1, other * k));
  part = (part + 15) / 16 * 16;
  return {.by_rows = by_rows, .part = part, .parts = (whole + part - 1) / part};
}

void check_gemm(const char* operation, std::int64_t m, std::int64_t n, std::int64_t k) {
  for (const std::int64_t size : {m, n, k}) {
    if (size > INT_MAX) refuse(operation, "expected sizes below 2^31, got ", size);
  }
}

template <class T>
void gemm_part(const Gemm<T>& g, const GemmMatrices<T>& x, bool by_rows, std::int64_t begin, std::int64_t end) {
  const std::int64_t m = by_rows ? end - begin : g.m, n = by_rows ? g.n : end - begin;
  GemmMatrices<T> part = x;
  const T* row = g.row;
  if (by_rows) {
    part.a += begin * (g.transpose_a ? 1 : g.lda);
    part.c += begin * g.ldc;
  } else {
    part.b += begin * (g.transpose_b ? g.ldb : 1);
    part.c += begin;
    if (row != nullptr) row += begin;
  }
  if (row != nullptr || (g.k == 0 && !g.add)) {
    for (std::int64_t i = 0; i < m; ++i) {
      if (row != nullptr)
        std::copy(row, row + n, part.c + i * g.ldc);
      else
        std::fill(part.c + i * g.ldc, part.c + i * g.ldc + n, T(0));
    }
  }
  if (g.k > 0) blas(g, part, static_cast<int>(m), static_cast<int>(n), row != nullptr || g.add ? T(1) : T(0));
}

template void gemm_part(const Gemm<float>&, const GemmMatrices<float>&, bool, std::int64_t, std::int64_t);
template void gemm_part(const Gemm<double>&, const GemmMatrices<double>&, bool, std::int64_t, std::int64_t);

}  // namespace keel::nn
