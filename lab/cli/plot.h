#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lab/result.h"

// Figures in a terminal: lines in braille dots, matrices in shades.
namespace keel::cli {

// Lines of text, none wider than the others' frame expects: see beside().
using Picture = std::vector<std::string>;

// Padded with spaces, on the left if `right`.
std::string padded(const std::string& text, std::size_t width, bool right = false);

struct PlotSize {
  std::size_t columns = 64, rows = 10;  // of characters; each has 2 × 4 dots
};

using Range = std::pair<double, double>;
// Of the y of all series; nothing if no number is finite.
std::optional<Range> y_range(const lab::Lines& lines);

// Each series ends in a letter, which the last line explains. `y`: the range, if it is not that of the lines
// themselves.
Picture plot(const lab::Lines& lines, const PlotSize& size, std::optional<Range> y = {});

// Darker means more; a weight below a twentieth is left blank.
const char* shade(double weight);
// The sentence that explains them.
inline constexpr const char* kShades = "weight  blank < 0.05 ≤ ░ < 0.25 ≤ ▒ < 0.5 ≤ ▓ < 0.75 ≤ █";

// Two characters per cell, between 0 and 1, in a frame.
Picture shades(const lab::Heatmap& map);

// A figure of either kind, or nothing: other kinds are for the report.
Picture draw(const lab::Figure& figure, const PlotSize& size, std::optional<Range> y = {});

// Two pictures next to each other, under their titles.
Picture beside(const std::pair<std::string, Picture>& left, const std::pair<std::string, Picture>& right);

}  // namespace keel::cli
