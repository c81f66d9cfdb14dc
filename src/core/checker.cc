#include "core/checker.h"

#include <string_view>

namespace keel {
namespace {

// The same elements at the same addresses.
bool same(const Layout& a, const Layout& b) {
  bool equal = a.base == b.base && a.item == b.item && a.rank == b.rank;
  for (int i = 0; equal && i < a.rank; ++i) {
    equal = a.shape[i] == b.shape[i] && (a.shape[i] <= 1 || a.strides[i] == b.strides[i]);
  }
  return equal;
}

}  // namespace

void Checker::check_memory() const {
  if (pointers_ == Pointers::ignored) return;
  for (std::size_t i = 0; i < memory_.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      const Memory& a = memory_[i];
      const Memory& b = memory_[j];
      if (!(a.written || b.written) || are_apart(a.span, b.span) || !share_memory(a.layout, b.layout)) continue;
      const Memory& output = a.written ? a : b;
      const Memory& other = a.written ? b : a;
      if (other.in_place != nullptr && std::string_view(other.in_place) == output.name && same(a.layout, b.layout)) {
        continue;
      }
      refuse(output.name, ": expected its own memory, got memory that overlaps ", other.name);
    }
  }
}

}  // namespace keel
