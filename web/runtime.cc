// What src/runtime/ and src/api/backends.cc are elsewhere, for a browser: one thread, one SIMD target, no GPU.
#include <hwy/highway.h>

#include <cstdlib>

#include "api/backends.h"
#include "cpu/backend.h"
#include "keel/error.h"
#include "runtime/parallel.h"
#include "runtime/workspace.h"

namespace keel {

const Machine& internal::machine() {
  static const Machine browser{.cpu = "WebAssembly",
                               .targets = {hwy::TargetName(HWY_STATIC_TARGET)},
                               .target_bits = {HWY_STATIC_TARGET},
                               .threads = 1,
                               .own_threads = false,
                               .l1_bytes = 32 << 10,
                               .l2_bytes = 256 << 10,
                               .l3_bytes = 4 << 20,
                               .units = {},
                               .bf16_unit = {}};
  return browser;
}

Resources resources() { return {&machine(), 0}; }

void internal::parallel_tasks(std::int64_t count, int, const std::function<void(std::int64_t)>& work) {
  for (std::int64_t i = 0; i < count; ++i) work(i);
}

std::byte* thread_workspace(std::int64_t bytes) {
  constexpr std::align_val_t kAlignment{64};
  static std::byte* memory = nullptr;
  static std::int64_t size = 0;
  if (bytes > size) {
    if (memory != nullptr) ::operator delete(memory, kAlignment);
    memory = static_cast<std::byte*>(::operator new(static_cast<std::size_t>(bytes), kAlignment));
    size = bytes;
  }
  return memory;
}

Backends& backends() {
  static Backends all;
  all.set(DeviceKind::cpu, &cpu::backend());
  return all;
}

}  // namespace keel

// Debian's libraries for wasm32 cannot unwind. A throw calls the page, which raises the message as a JavaScript error
// and never returns here; the page then resets the stack pointer. Everything that Keel throws is a std::exception.
extern "C" {
[[noreturn]] __attribute__((import_module("page"), import_name("fail"))) void page_fail(const char* message);

void* __cxa_allocate_exception(std::size_t size) noexcept { return std::malloc(size); }
[[noreturn]] void __cxa_throw(void* exception, void*, void (*)(void*)) {
  page_fail(static_cast<std::exception*>(exception)->what());
}
}
