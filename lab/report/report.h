#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lab/record.h"
#include "lab/report/assets.h"

namespace keel::lab {

// One self-contained HTML page: the ledger first, then one section per experiment. Numbers and texts are plain HTML;
// charts are drawn next to them by `d3`, the text of d3.min.js. If that is empty, the page says why there are none.
std::string report(const std::vector<Record>& records, const std::vector<Entry>& ledger,
                   std::string_view d3 = assets::d3());

// A separate page for a few figures.
std::string figure_page(const std::string& title, const std::string& text, const std::vector<Figure>& figures,
                        std::string_view d3 = assets::d3());

}  // namespace keel::lab
