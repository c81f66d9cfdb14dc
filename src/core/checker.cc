#include "core/checker.h"

namespace keel {

void Checker::check_memory() const {
  if (pointers_ == Pointers::ignored) return;
  for (std::size_t i = 0; i < memory_.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      const Memory& a = memory_[i];
      const Memory& b = memory_[j];
      if (!(a.written || b.written) || !share_memory(a.layout, b.layout)) continue;
      const Memory& output = a.written ? a : b;
      const Memory& other = a.written ? b : a;
      refuse(output.name, ": expected memory of its own, got one that overlaps ", other.name);
    }
  }
}

}  // namespace keel
