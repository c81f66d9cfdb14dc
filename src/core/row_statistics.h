#pragma once

#include <cstddef>
#include <iterator>

#include "keel/attention.h"

namespace keel {

// What rows have in parts and results, counts last.
struct RowStatistic {
  const char* name;
  RowView Partial::*part;
  MutableRowView Outputs::*result;
};
inline constexpr RowStatistic kRowStatistics[] = {{"lse", &Partial::lse, &Outputs::lse},
                                                  {"max_logit", &Partial::max_logit, &Outputs::max_logit},
                                                  {"entropy", &Partial::entropy, &Outputs::entropy},
                                                  {"max_weight", &Partial::max_weight, &Outputs::max_weight},
                                                  {"logit_mean", &Partial::logit_mean, &Outputs::logit_mean},
                                                  {"logit_var", &Partial::logit_var, &Outputs::logit_var},
                                                  {"visible", &Partial::visible, &Outputs::visible},
                                                  {"logit_count", &Partial::logit_count, &Outputs::logit_count}};
inline constexpr std::size_t kRowStatisticCount = std::size(kRowStatistics);
inline constexpr std::size_t kLogitMean = 4, kLogitVar = 5, kVisible = 6, kLogitCount = 7;

constexpr bool is_count(std::size_t statistic) { return statistic >= kVisible; }

}  // namespace keel
