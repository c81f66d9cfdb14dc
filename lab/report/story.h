#pragma once

#include <string>
#include <vector>

#include "lab/record.h"

namespace keel::lab {

// The question's answer in three sentences, with what this run measured.
std::string answer_html(const std::vector<Record>& records);

// The chain of reasons, one section per step, each with one figure. A figure that this run has not measured is left
// out.
std::string steps_html(const std::vector<Record>& records, const std::vector<Entry>& ledger);

}  // namespace keel::lab
