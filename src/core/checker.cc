#include "core/checker.h"

namespace keel {

void Checker::check_memory() const {
  if (pointers_ == Pointers::ignored) return;
  std::vector<Span> spans;
  spans.reserve(memory_.size());
  for (const Memory& memory : memory_) spans.push_back(span_of(memory.layout));
  for (std::size_t i = 0; i < memory_.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      const Memory& a = memory_[i];
      const Memory& b = memory_[j];
      if (!(a.written || b.written) || are_apart(spans[i], spans[j]) || !share_memory(a.layout, b.layout)) continue;
      const Memory& output = a.written ? a : b;
      const Memory& other = a.written ? b : a;
      refuse(output.name, ": expected memory of its own, got one that overlaps ", other.name);
    }
  }
}

}  // namespace keel
