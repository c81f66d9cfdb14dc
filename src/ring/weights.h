#pragma once

#include <cmath>
#include <utility>
#include <vector>

#include "core/element.h"
#include "cpu/zero.h"
#include "ring/local.h"
#include "ring/rows.h"

namespace keel::ring {

// Weights of each stretch of keys are normalised by its own lse; once that of all keys is known, they are scaled.
class Weights {
 public:
  Weights(const MutableTensorView& wanted, std::int64_t n_k) : wanted_(wanted), view_(wanted), n_k_(n_k) {
    if (!view_.given() || size_of(view_.dtype) > 2) return;
    std::int64_t count = 1;
    for (const std::int64_t n : view_.shape) count *= n;
    rounded_later_.resize(static_cast<std::size_t>(count));
    view_ = {rounded_later_.data(), DType::f32, view_.shape, contiguous_strides(view_.shape)};
  }
  MutableTensorView view(const Queries& queries, const Rows& keys) const {
    return of_keys(queries.of_rows(view_), keys, n_k_);
  }
  void begin() const { cpu::zero(view_); }

  void note(const Queries& queries, const Rows& keys, const MutableRowView& lse) {
    if (!view_.given()) return;
    Piece piece = {queries, keys, {}};
    for_rows(lse, [&](auto... at) { piece.lse.push_back(load_at(lse, at...)); });
    pieces_.push_back(std::move(piece));
  }

  void finish(const RowResults& rows, int threads) const {
    if (!view_.given()) return;
    for (const Piece& piece : pieces_) {
      const MutableRowView lse = piece.queries.of_rows(rows.outputs.lse);
      const MutableTensorView part = view(piece.queries, piece.keys);
      std::size_t row = 0;
      for_rows(lse, [&](std::int64_t b, std::int64_t h, std::int64_t i) {
        const double factor = std::exp(piece.lse[row] - load_at(lse, b, h, i));
        if (piece.lse[row++] == -INFINITY) return;
        for (std::int64_t j = 0; j < part.shape[3]; ++j) {
          const double p = load_at(part, b, h, i, j);
          if (p != 0.0) store_at(part, p * factor, b, h, i, j);
        }
      });
    }
    if (!rounded_later_.empty()) copy(view_, wanted_, threads);
  }

 private:
  struct Piece {
    Queries queries;
    Rows keys;
    std::vector<double> lse;
  };
  template <class Work>
  static void for_rows(const MutableRowView& rows, Work work) {
    for (std::int64_t b = 0; b < rows.shape[0]; ++b) {
      for (std::int64_t h = 0; h < rows.shape[1]; ++h) {
        for (std::int64_t i = 0; i < rows.shape[2]; ++i) work(b, h, i);
      }
    }
  }

  MutableTensorView wanted_, view_;
  std::int64_t n_k_;
  std::vector<float> rounded_later_;
  std::vector<Piece> pieces_;
};

}  // namespace keel::ring
