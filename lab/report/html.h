#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lab/json.h"

// Pieces of a page.
namespace keel::lab {

// As text between tags or in an attribute. A percent sign stays on the line of its number.
std::string escaped(std::string_view text);

// "[-2.1, 3e-05]" with a minus sign before each negative number: "[−2.1, 3e-05]".
std::string with_minus(std::string_view text);

std::string table_html(const Table& table);

// Charts with their numbers, and tables, two in a row; one that would leave half a row empty gets all of it. Their ids
// are "experiment-figure".
std::string figures_html(const std::string& experiment, const std::vector<const Figure*>& figures);

// JSON inside a script element: "</script" would end it, and after "<!--" and "<script" the next "</script>" would not.
std::string script_json(const Json& data);

// The page with each "{{name}}" replaced by its text.
std::string filled(std::string_view page, const std::vector<std::pair<std::string_view, std::string>>& parts);

}  // namespace keel::lab
