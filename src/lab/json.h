#pragma once

#include <nlohmann/json.hpp>

#include "lab/result.h"

// Results as JSON, and back: what a run leaves in its folder, a later one can read.
namespace keel::lab {

using Json = nlohmann::ordered_json;

Json to_json(const Measurements& measurements);
Json to_json(const Figure& figure);
Json to_json(const Result& result);

// Raises nlohmann::json::exception where something is missing or of another type.
Result result_from_json(const Json& json);

}  // namespace keel::lab
