#pragma once

#include <nlohmann/json.hpp>

#include "lab/result.h"

// Results as JSON, and back: what a run leaves in its folder, a later one can read.
namespace keel::lab {

using Json = nlohmann::ordered_json;

Json to_json(const Measurements& measurements);
Json to_json(const Figure& figure);
Json to_json(const Findings& findings);
Json to_json(const Result& result);  // without its times

// Both raise nlohmann::json::exception if something is missing or of another type.
Findings findings_from_json(const Json& json);
Result result_from_json(const Json& json);  // likewise

}  // namespace keel::lab
