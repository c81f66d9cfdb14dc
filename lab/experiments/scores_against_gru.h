#pragma once

#include "lab/result.h"
#include "lab/work.h"

namespace keel::lab {

inline constexpr std::int64_t kGruSequences = 8;

// A part of the experiment `scores`: attention and a GRU against the length and the width, and where they meet.
void time_against_gru(Work& work, double share, std::size_t rounds, Findings& times);

}  // namespace keel::lab
