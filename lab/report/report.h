#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lab/record.h"
#include "lab/report/assets.h"

namespace keel::lab {

// One HTML page that needs nothing but itself: the ledger first, then a section an experiment. Numbers and texts are
// plain HTML; charts are drawn beside them by `d3`, the text of d3.min.js. Where that is empty the page says why there
// are none.
std::string report(const std::vector<Record>& records, const std::vector<Entry>& ledger,
                   std::string_view d3 = assets::d3());

// A page of its own for a few figures.
std::string figure_page(const std::string& title, const std::string& text, const std::vector<Figure>& figures,
                        std::string_view d3 = assets::d3());

}  // namespace keel::lab
