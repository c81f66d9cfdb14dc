#include "runtime/workspace.h"

#include <memory>
#include <new>

namespace keel {
namespace {

constexpr std::align_val_t kAlignment{64};

struct Release {
  void operator()(std::byte* memory) const { ::operator delete(memory, kAlignment); }
};

}  // namespace

std::byte* thread_workspace(std::int64_t bytes) {
  thread_local std::unique_ptr<std::byte, Release> memory;
  thread_local std::int64_t size = 0;
  if (bytes > size) {
    memory.reset();
    size = 0;
    memory.reset(static_cast<std::byte*>(::operator new(static_cast<std::size_t>(bytes), kAlignment)));
    size = bytes;
  }
  return memory.get();
}

}  // namespace keel
