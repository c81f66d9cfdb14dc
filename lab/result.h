#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace keel::lab {

// One number that an experiment found: the mean over independent repeats and their standard deviation. An exact result
// (arithmetic without chance) has one repeat and no spread.
struct Measurement {
  double value = 0;
  double spread = 0;
  std::int64_t repeats = 1;
};

// By key: "variance.unit.d64.var".
using Measurements = std::map<std::string, Measurement>;

struct Axis {
  std::string label;
  bool log = false;
  Axis() = default;
  Axis(const char* label_, bool log_ = false) : label(label_), log(log_) {}
};

// A value with its range; low = high = y if there is nothing to show.
struct Point {
  double x = 0, y = 0, low = 0, high = 0;
};

// What a line is: measured; the theory of the line it follows, drawn dashed in its colour; or something to compare
// with.
enum class Role { measured, theory, reference };

struct Series {
  std::string name;
  std::vector<Point> points;
  Role role = Role::measured;
};

// y against x, with bands from low to high.
struct Lines {
  Axis x, y;
  std::vector<Series> series;
  std::string band;  // what the bands are: "5 to 95 % of rows"
};

// One value and bar per category and series; a point's x is the number of its category.
struct Dots {
  Axis x;
  std::vector<std::string> categories;
  std::vector<Series> series;
  std::string band;
};

// How a quantity is distributed: the share of values in each bin, for one or more arms.
struct Distribution {
  struct Arm {
    std::string name;
    std::vector<double> shares;
    Role role = Role::measured;
  };
  Axis x;
  std::vector<double> edges;
  std::vector<Arm> arms;
};

// A matrix as a picture. NaN is a cell that does not exist (masked).
struct Heatmap {
  std::string row_label, column_label, value_label;
  std::vector<std::string> rows, columns;
  std::vector<double> values;  // row by row
  double from = 0, to = 1;     // the ends of the colour scale
  bool log = false;            // of the colour scale
};

struct Table {
  using Cell = std::variant<std::string, double>;
  std::vector<std::string> columns;
  std::vector<std::vector<Cell>> rows;
};

using Body = std::variant<Lines, Dots, Distribution, Heatmap, Table>;

struct Figure {
  std::string id;     // file name of its numbers, and anchor in the report
  std::string title;  // what it shows
  std::string text;   // what it shows, in words and numbers: the alternative text
  Body body;
};

struct Findings {
  std::vector<std::string> findings;  // the results, one sentence each, with the numbers of this run
  std::vector<Figure> figures;
  Measurements measurements;

  // Mean and standard deviation of independent repeats; returns the mean.
  double measure(const std::string& key, std::span<const double> repeats);
  double exact(const std::string& key, double value);
  void draw(std::string id, std::string title, std::string text, Body body) {
    figures.push_back({std::move(id), std::move(title), std::move(text), std::move(body)});
  }
  // The value measured under this key.
  double at(const std::string& key) const { return measurements.at(key).value; }
  bool empty() const { return findings.empty() && figures.empty() && measurements.empty(); }
};

struct Result : Findings {
  std::string settings;  // sizes and repeats, in words
  Findings times;        // everything that depends on a clock: all that the same seed does not reproduce

  std::array<const Findings*, 2> parts() const { return {this, &times}; }
};

// Mean over repeats with a band of one standard deviation to each side.
Point point(double x, std::span<const double> repeats);
// The same with the 95 % confidence interval of that mean.
Point confident_point(double x, std::span<const double> repeats);
// The median of `values`, with a band between two quantiles.
Point quantile_point(double x, std::span<const double> values, double low = 0.05, double high = 0.95);

// The numbers behind a figure.
Table table_of(const Figure& figure);
std::string to_csv(const Table& table);

// Enough digits to read: 0.3711, 1.2e-05, 64.02.
std::string number_text(double value);

// With a capital first letter, as a title or a sentence begins.
std::string capitalised(std::string text);

}  // namespace keel::lab
