#pragma once

#include <string>
#include <vector>

#include "lab/record.h"

namespace keel::lab {

// One HTML page that needs nothing but itself: the ledger first, then a section an experiment. Numbers and texts are
// plain HTML; charts are drawn over them where D3 was built in and scripts run.
std::string report(const std::vector<Record>& records, const std::vector<Entry>& ledger);

}  // namespace keel::lab
