#include "conformance/memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <new>

namespace keel::conformance {
namespace {

constexpr std::align_val_t kVector{64};

#if defined(__SANITIZE_ADDRESS__)  // GCC
#define KEEL_ADDRESS_SANITIZER
#elif defined(__has_feature)  // clang
#if __has_feature(address_sanitizer)
#define KEEL_ADDRESS_SANITIZER
#endif
#endif

#if defined(KEEL_ADDRESS_SANITIZER)
constexpr std::size_t kGuard = 0;
#else
constexpr std::size_t kGuard = 64;
#endif

// Whole pages for `size` bytes, between two that fault.
unsigned char* map_pages(std::size_t size, std::size_t page) {
  void* const pages = mmap(nullptr, size + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (pages == MAP_FAILED) throw std::bad_alloc();
  auto* const first = static_cast<unsigned char*>(pages) + page;
  if (size > 0 && mprotect(first, size, PROT_READ | PROT_WRITE) != 0) {
    munmap(pages, size + 2 * page);
    throw std::bad_alloc();
  }
  return first;
}

}  // namespace

Memory::Memory(std::size_t size, std::size_t item, Placement placement, unsigned char paint) {
  if (placement == Placement::aligned || placement == Placement::shifted) {
    const std::size_t lead = kGuard + (placement == Placement::aligned ? 0 : item);
    auto* const bytes = static_cast<unsigned char*>(::operator new(lead + size + kGuard, kVector));
    allocation_ = std::unique_ptr<unsigned char, Free>(bytes, Free{0});
    bytes_ = {bytes, lead + size + kGuard};
    begin_ = bytes + lead;
  } else {
    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    const std::size_t whole = (size + page - 1) / page * page;
    unsigned char* const bytes = map_pages(whole, page);
    allocation_ = std::unique_ptr<unsigned char, Free>(bytes - page, Free{whole + 2 * page});
    begin_ = placement == Placement::before_page ? bytes + whole - size : bytes;
    bytes_ = {bytes, whole};
  }
  std::memset(bytes_.data(), paint, bytes_.size());
}

void Memory::Free::operator()(unsigned char* allocation) const {
  if (mapped > 0) {
    munmap(allocation, mapped);
  } else {
    ::operator delete(allocation, kVector);
  }
}

}  // namespace keel::conformance
