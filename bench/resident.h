#pragma once

#include <cstdint>
#include <functional>
#include <optional>

namespace keel::bench {

// By how much the process's resident memory rose above where it stood, at its highest, while `work` ran; nothing where
// the system does not tell. The kernel counts in batches of pages: it is good to some hundred KiB.
std::optional<std::int64_t> resident_growth(const std::function<void()>& work);

}  // namespace keel::bench
