#pragma once

#include <cstddef>
#include <cstdint>

namespace keel {

// At least `bytes` of scratch memory of the calling thread, aligned to 64 bytes. It stays valid until the thread asks
// again, and is kept for its next call. Raises std::bad_alloc.
std::byte* thread_workspace(std::int64_t bytes);

}  // namespace keel
