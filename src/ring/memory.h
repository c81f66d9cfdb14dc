#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace keel::ring {

// Memory for messages and partial results. What a thread gives back is kept for its next call: fresh memory costs a
// page fault per 4 KiB, which for large blocks is a tenth of the time that a step takes.
std::shared_ptr<std::byte[]> take_memory(std::int64_t bytes);

}  // namespace keel::ring
