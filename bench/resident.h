#pragma once

#include <cstdint>
#include <functional>
#include <optional>

namespace keel::bench {

// The peak increase of the process's resident memory while `work` ran; nothing if the system does not report it. The
// kernel counts in batches of pages, so it is accurate to some hundred KiB.
std::optional<std::int64_t> resident_growth(const std::function<void()>& work);

}  // namespace keel::bench
