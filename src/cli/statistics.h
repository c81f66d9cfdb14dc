#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <span>
#include <string>

#include "keel/attention.h"

namespace keel::cli {

// All heads as one: the largest logit, the smallest entropy, and means over rows.
HeadStatistics over_all(std::span<const HeadStatistics> heads);

// A table of the heads (entry-major, q_heads per entry), and one line for all of them.
std::string statistics_table(std::span<const HeadStatistics> heads, std::int64_t q_heads);

// The same as data; infinities and NaN, which JSON cannot represent, are null.
nlohmann::ordered_json statistics_json(std::span<const HeadStatistics> heads, std::int64_t q_heads);

}  // namespace keel::cli
