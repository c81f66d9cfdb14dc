#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lab/record.h"
#include "lab/report/assets.h"

namespace keel::lab {

// What a page draws with. Without D3 it says why there are no charts; without kernels it shows recorded rows and says
// so.
struct Tools {
  std::string_view d3 = assets::d3();
  std::string_view kernels = assets::kernels();
};

// One self-contained HTML page that tells a story: the question and its answer, a live figure, the chain of reasons
// step by step, a worked example, a playground; then every measurement, and the ledger.
std::string report(const std::vector<Record>& records, const std::vector<Entry>& ledger, const Tools& tools = {});

// The live figure, the worked example and the playground, as a page of their own.
std::string playground_page(const Tools& tools = {});

// A separate page for a few figures.
std::string figure_page(const std::string& title, const std::string& text, const std::vector<Figure>& figures,
                        const Tools& tools = {});

}  // namespace keel::lab
