#pragma once

#include <span>
#include <vector>

#include "ring/geometry.h"
#include "ring/rows.h"

namespace keel::ring {

// What the rows of one rank contribute to the statistics of heads: so many numbers per entry and head.
inline constexpr std::size_t kHeadSums = 7;
std::vector<double> head_sums(const Geometry& geometry, const Shard& queries, const RowResults& rows, bool sinks,
                              double threshold);

// The statistics from those of all ranks.
void reduce_heads(const std::vector<std::vector<double>>& sums, std::span<HeadStatistics> heads);

}  // namespace keel::ring
