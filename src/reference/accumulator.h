#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "core/element.h"

namespace keel::reference {

// A float64 sum for every element of a gradient view, added to in any order of rows and rounded to the view once.
template <std::size_t Rank>
class Accumulator {
 public:
  Accumulator(const BasicView<Rank, void*>& view, bool accumulate) : view_(view), accumulate_(accumulate) {
    if (!view.given()) return;
    std::size_t size = 1;
    for (std::size_t i = 0; i < Rank; ++i) {
      reduced_[i] = view.shape[i] > 1 && view.strides[i] == 0;
      extents_[i] = reduced_[i] ? 1 : view.shape[i];
      size *= static_cast<std::size_t>(extents_[i]);
    }
    sums_.assign(size, 0.0);
  }

  bool wanted() const { return view_.given(); }

  template <class... Index>
  void add(double value, Index... index) {
    sums_[place({index...})] += value;
  }

  void write() const {
    if (!wanted() || sums_.empty()) return;
    std::array<std::int64_t, Rank> index{};
    for (std::size_t at = 0; at < sums_.size(); ++at) {
      std::int64_t offset = 0;
      for (std::size_t i = 0; i < Rank; ++i) offset += index[i] * view_.strides[i];
      const double before = accumulate_ ? load(view_.data, view_.dtype, offset) : 0.0;
      store(view_.data, view_.dtype, offset, before + sums_[at]);
      for (std::size_t i = Rank; i-- > 0 && ++index[i] == extents_[i];) index[i] = 0;
    }
  }

 private:
  std::size_t place(const std::array<std::int64_t, Rank>& index) const {
    std::int64_t at = 0;
    for (std::size_t i = 0; i < Rank; ++i) at = at * extents_[i] + (reduced_[i] ? 0 : index[i]);
    return static_cast<std::size_t>(at);
  }

  BasicView<Rank, void*> view_;
  bool accumulate_;
  std::array<bool, Rank> reduced_{};
  std::array<std::int64_t, Rank> extents_{};
  std::vector<double> sums_;
};

}  // namespace keel::reference
