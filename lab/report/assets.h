#pragma once

#include <string_view>

// Files that are part of the program: the report's own, the playground's, and what the build found.
namespace keel::lab::assets {

std::string_view page();              // page.html: head and scripts, with placeholders for the others
std::string_view story();             // story.html: the body of the report
std::string_view style();             // style.css
std::string_view charts();            // charts.js
std::string_view breaks();            // breaks.js
std::string_view playground_page();   // web/page.html: the body of the playground as a page of its own
std::string_view playground_html();   // web/sections.html: worked example and playground, for both
std::string_view playground_style();  // web/playground.css
std::string_view playground();        // the scripts of web/
std::string_view kernels();           // keel.wasm, compressed and in base64; empty if the build had no compiler for it
std::string_view d3();                // empty if the build had none

}  // namespace keel::lab::assets
