#include <atomic>
#include <bit>
#include <map>
#include <mutex>
#include <new>
#include <vector>

#include "nn/tape.h"

namespace keel::nn {
namespace {

constexpr std::align_val_t kAlignment{64};
constexpr std::size_t kSmall = 1 << 16;           // below this the allocator is quick enough
constexpr std::size_t kLargestIdle = 1ull << 30;  // kept for later, in all

struct Pool {
  std::mutex mutex;
  std::map<std::size_t, std::vector<void*>> idle;
  std::size_t idle_bytes = 0;
};

// Never destroyed, for tensors may outlive any static object.
Pool& pool() {
  static Pool* const instance = new Pool;
  return *instance;
}

// Sizes in steps of an eighth, so that shapes that differ a little share blocks.
std::size_t rounded(std::size_t bytes) {
  if (bytes < kSmall) return bytes == 0 ? 1 : bytes;
  const std::size_t step = std::bit_floor(bytes) / 8;
  return (bytes + step - 1) / step * step;
}

std::atomic<std::int64_t> bytes_now = 0, bytes_most = 0;

void count(std::int64_t bytes) {
  const std::int64_t now = bytes_now.fetch_add(bytes, std::memory_order_relaxed) + bytes;
  std::int64_t most = bytes_most.load(std::memory_order_relaxed);
  while (now > most && !bytes_most.compare_exchange_weak(most, now, std::memory_order_relaxed)) {
  }
}

}  // namespace

MemoryUse memory_use() { return {.now = bytes_now, .most = bytes_most}; }
void watch_memory() { bytes_most = bytes_now.load(); }

Storage::Storage(std::size_t bytes) : bytes_(rounded(bytes)) {
  count(static_cast<std::int64_t>(bytes_));
  if (bytes_ >= kSmall) {
    Pool& p = pool();
    const std::lock_guard lock(p.mutex);
    const auto found = p.idle.find(bytes_);
    if (found != p.idle.end() && !found->second.empty()) {
      data_ = static_cast<std::byte*>(found->second.back());
      found->second.pop_back();
      p.idle_bytes -= bytes_;
      return;
    }
  }
  data_ = static_cast<std::byte*>(::operator new(bytes_, kAlignment));
}

Storage::~Storage() {
  count(-static_cast<std::int64_t>(bytes_));
  if (bytes_ >= kSmall) {
    Pool& p = pool();
    const std::lock_guard lock(p.mutex);
    if (p.idle_bytes + bytes_ <= kLargestIdle) {
      p.idle[bytes_].push_back(data_);
      p.idle_bytes += bytes_;
      return;
    }
  }
  ::operator delete(data_, kAlignment);
}

}  // namespace keel::nn
