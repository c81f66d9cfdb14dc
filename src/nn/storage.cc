#include <algorithm>
#include <bit>
#include <map>
#include <mutex>
#include <new>
#include <vector>

#include "nn/tape.h"

namespace keel::nn {
namespace {

constexpr std::align_val_t kAlignment{64};
constexpr std::size_t kSmall = 1 << 10;           // below this the allocator is fast enough
constexpr std::size_t kLargestIdle = 1ull << 30;  // total kept for later

struct Pool {
  std::mutex mutex;
  std::map<std::size_t, std::vector<void*>> idle;
  std::size_t idle_bytes = 0;
};

// Never destroyed, as tensors may outlive any static object.
Pool& pool() {
  static Pool* const instance = new Pool;
  return *instance;
}

// Sizes in steps of an eighth, so that slightly different shapes share blocks.
std::size_t rounded(std::size_t bytes) {
  if (bytes < kSmall) return bytes == 0 ? 1 : bytes;
  const std::size_t step = std::bit_floor(bytes) / 8;
  return (bytes + step - 1) / step * step;
}

// Per thread. A tensor that another thread frees counts as freed there, so sums over threads are right.
thread_local MemoryUse use;

void count(std::int64_t bytes) {
  use.now += bytes;
  use.most = std::max(use.most, use.now);
}

}  // namespace

MemoryUse memory_use() { return use; }
void watch_memory() { use.most = use.now; }

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
