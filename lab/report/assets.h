#pragma once

#include <string_view>

// Files that are part of the program: the report's own, and D3 if the build found it.
namespace keel::lab::assets {

std::string_view page();    // page.html, with placeholders for the others
std::string_view style();   // style.css
std::string_view charts();  // charts.js
std::string_view d3();      // empty if the build had none

}  // namespace keel::lab::assets
