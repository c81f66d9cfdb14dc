#include "runtime/workspace.h"

#include <pthread.h>

#include <cerrno>
#include <new>

namespace keel {
namespace {

constexpr std::align_val_t kAlignment{64};

void release(void* memory) { ::operator delete(memory, kAlignment); }

// Frees a thread's memory when the thread ends. Not the destructor of a thread_local object, since glibc aborts the
// process if it has no memory to register that one.
class AtThreadEnd {
 public:
  AtThreadEnd() : made_(pthread_key_create(&key_, release) == 0) {}
  ~AtThreadEnd() {  // the library may be unloaded before the thread ends
    if (made_) pthread_key_delete(key_);
  }
  AtThreadEnd(const AtThreadEnd&) = delete;
  AtThreadEnd& operator=(const AtThreadEnd&) = delete;

  // False if there is no memory to register it. Without a key the memory stays until the process ends.
  bool free(void* memory) const { return !made_ || pthread_setspecific(key_, memory) != ENOMEM; }

 private:
  pthread_key_t key_{};
  bool made_;
};
const AtThreadEnd kAtThreadEnd;

}  // namespace

std::byte* thread_workspace(std::int64_t bytes) {
  thread_local std::byte* memory = nullptr;
  thread_local std::int64_t size = 0;
  if (bytes > size) {
    kAtThreadEnd.free(nullptr);
    release(memory);
    memory = nullptr;
    size = 0;
    void* const fresh = ::operator new(static_cast<std::size_t>(bytes), kAlignment);
    if (!kAtThreadEnd.free(fresh)) {
      release(fresh);
      throw std::bad_alloc();
    }
    memory = static_cast<std::byte*>(fresh);
    size = bytes;
  }
  return memory;
}

}  // namespace keel
