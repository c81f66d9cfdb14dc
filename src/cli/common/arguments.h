#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <vector>

namespace keel::cli {

// For options that name something: an empty shell variable is a mistake, not a choice.
extern const CLI::Validator kNotEmpty;

// "3,5" as numbers; raises CLI::ValidationError, naming the flag.
std::vector<std::int64_t> integers(const std::string& text, const std::string& flag);
std::vector<double> floats(const std::string& text, const std::string& flag);

// "3,5" as texts.
std::vector<std::string> split(const std::string& text);

// The value of --seed; raises CLI::ValidationError.
std::uint64_t seed_number(const std::string& text);

}  // namespace keel::cli
