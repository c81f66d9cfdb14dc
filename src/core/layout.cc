#include "core/layout.h"

#include <algorithm>
#include <array>
#include <span>

namespace keel {
namespace {

// Is there 0 ≤ x_i ≤ count_i with Σ step_i·x_i = target? Depth first over the terms by falling step; what the later
// terms can still add bounds each x_i, so nested strides leave one or two candidates per level.
class SubsetSum {
 public:
  void add(std::int64_t step, std::int64_t count) {
    if (step == 0 || count == 0) return;
    for (int i = 0; i < size_; ++i) {
      if (terms_[i].step == step) {
        terms_[i].count += count;
        return;
      }
    }
    terms_[size_++] = {step, count, 0};
  }

  bool reaches(std::int64_t target) {
    std::sort(terms_.begin(), terms_.begin() + size_, [](const Term& a, const Term& b) { return a.step > b.step; });
    std::int64_t rest = 0;
    for (int i = size_; i-- > 0;) {
      terms_[i].rest = rest;
      rest += terms_[i].step * terms_[i].count;
    }
    return target >= 0 && target <= rest && search(0, target);
  }

 private:
  struct Term {
    std::int64_t step, count, rest;  // rest: the most that later terms add
  };
  static constexpr int kMaxWork = 100000;

  bool search(int level, std::int64_t target) {
    if (target == 0) return true;
    if (level == size_) return false;
    if (++work_ > kMaxWork) return true;
    const Term& term = terms_[level];
    const std::int64_t most = std::min(term.count, target / term.step);
    const std::int64_t missing = target - term.rest;
    const std::int64_t least = missing <= 0 ? 0 : (missing + term.step - 1) / term.step;
    for (std::int64_t x = most; x >= least; --x) {
      if (search(level + 1, target - x * term.step)) return true;
    }
    return false;
  }

  std::array<Term, 10> terms_{};  // four dimensions and the bytes of an element, twice
  int size_ = 0;
  int work_ = 0;
};

}  // namespace

bool has_distinct_elements(const Layout& layout, bool reduces) {
  struct Dimension {
    std::int64_t stride = 0, steps = 0;
  };
  std::array<Dimension, 4> dims{};
  for (int i = 0; i < layout.rank; ++i) {
    if (layout.shape[i] == 0) return true;
    // In reverse, an array in C order is sorted as it is.
    dims[layout.rank - 1 - i] = {magnitude(layout.strides[i]), layout.shape[i] - 1};
  }
  const std::span used(dims.data(), static_cast<std::size_t>(layout.rank));
  std::sort(used.begin(), used.end(), [](const Dimension& a, const Dimension& b) { return a.stride < b.stride; });
  std::int64_t reached = 0;  // fits, as the extent does
  for (const Dimension& dim : used) {
    if (dim.steps == 0 || (reduces && dim.stride == 0)) continue;
    if (dim.stride <= reached) return false;
    reached += dim.stride * dim.steps;
  }
  return true;
}

bool share_memory(const Layout& a, const Layout& b) {
  const Extent a_extent = extent_of(a), b_extent = extent_of(b);
  if (a_extent.count == 0 || b_extent.count == 0) return false;
  if (!a_extent.fits || !b_extent.fits) return true;
  const Span a_span = a_extent.span, b_span = b_extent.span;
  if (are_apart(a_span, b_span)) return false;

  // a.low + Σ a-steps = b.low + Σ b-steps; with every b-index counted from its far end all signs become plus.
  SubsetSum sum;
  for (const Layout* layout : {&a, &b}) {
    for (int i = 0; i < layout->rank; ++i) {
      if (layout->shape[i] > 1) sum.add(magnitude(layout->strides[i]) * layout->item, layout->shape[i] - 1);
    }
    sum.add(1, layout->item - 1);
  }
  const std::uintptr_t b_high = b_span.low + b_span.size - 1;
  return b_high >= a_span.low && sum.reaches(static_cast<std::int64_t>(b_high - a_span.low));
}

}  // namespace keel
