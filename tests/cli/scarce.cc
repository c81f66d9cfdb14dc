// Loaded ahead of the C library (LD_PRELOAD), it fails what takes memory or a thread: of those calls, counted from the
// start of the process, the one that KEEL_FAIL_AT says, and with KEEL_FAIL_ON all that follow. With KEEL_FAIL_THREADS
// every thread. KEEL_COUNT names a file that gets how many calls there were.
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>

extern "C" {
void* __libc_malloc(size_t size);
void* __libc_calloc(size_t count, size_t size);
void* __libc_realloc(void* memory, size_t size);
void* __libc_memalign(size_t alignment, size_t size);
}

namespace {

std::atomic<long> calls = 0;

std::atomic<bool> loading = false;

bool fails() {
  const char* text = getenv("KEEL_FAIL_AT");  // which takes no memory
  const long at = text == nullptr ? 0 : atol(text), now = ++calls;
  const bool on = getenv("KEEL_FAIL_ON") != nullptr;
  const bool failing = at > 0 && (on ? now >= at && !loading : now == at);
  if (failing) errno = ENOMEM;
  return failing;
}

// The C library's own, found as long as there is memory.
decltype(&pthread_create) real_create;
decltype(&dlopen) real_dlopen;

__attribute__((constructor)) void find() {
  real_create = reinterpret_cast<decltype(&pthread_create)>(dlsym(RTLD_NEXT, "pthread_create"));
  real_dlopen = reinterpret_cast<decltype(&dlopen)>(dlsym(RTLD_NEXT, "dlopen"));
}

__attribute__((destructor)) void report() {
  const char* path = getenv("KEEL_COUNT");
  const int file = path == nullptr ? -1 : open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
  if (file >= 0) dprintf(file, "%ld", calls.load());
}

}  // namespace

extern "C" {

void* malloc(size_t size) { return fails() ? nullptr : __libc_malloc(size); }
void* calloc(size_t count, size_t size) { return fails() ? nullptr : __libc_calloc(count, size); }
void* realloc(void* memory, size_t size) { return fails() ? nullptr : __libc_realloc(memory, size); }
void* memalign(size_t alignment, size_t size) { return fails() ? nullptr : __libc_memalign(alignment, size); }
void* aligned_alloc(size_t alignment, size_t size) { return memalign(alignment, size); }
int posix_memalign(void** memory, size_t alignment, size_t size) {
  *memory = memalign(alignment, size);
  return *memory == nullptr ? ENOMEM : 0;
}

void* mmap(void* address, size_t size, int protection, int flags, int file, off_t offset) {
  if (fails()) return MAP_FAILED;
  const long result = syscall(SYS_mmap, address, size, protection, flags, file, offset);
  return reinterpret_cast<void*>(result);
}

int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*work)(void*), void* data) {
  if (fails() || getenv("KEEL_FAIL_THREADS") != nullptr) return EAGAIN;
  return real_create(thread, attributes, work, data);
}

// As a whole where all are to fail: glibc 2.36 crashes when first that which it loads and then the note for dlerror()
// finds no memory.
void* dlopen(const char* path, int flags) {
  if (fails()) return nullptr;
  loading = true;
  void* const library = real_dlopen(path, flags);
  loading = false;
  return library;
}

}  // extern "C"
