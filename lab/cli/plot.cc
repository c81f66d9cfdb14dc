#include "lab/cli/plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "io/utf8.h"

namespace keel::cli {

std::string padded(const std::string& text, std::size_t width, bool right) {
  const std::string space(width - std::min(width, io::characters_in(text)), ' ');
  return right ? space + text : text + space;
}

namespace {

// Dots of braille characters, from the bottom left.
class Canvas {
 public:
  explicit Canvas(const PlotSize& size) : size_(size), cells_(size.columns * size.rows, 0) {}

  std::size_t width() const { return 2 * size_.columns; }
  std::size_t height() const { return 4 * size_.rows; }

  void dot(long x, long y) {
    if (x < 0 || y < 0 || x >= static_cast<long>(width()) || y >= static_cast<long>(height())) return;
    constexpr unsigned char kBits[2][4] = {{0x40, 0x04, 0x02, 0x01}, {0x80, 0x20, 0x10, 0x08}};  // from below
    cells_[row_of(y) * size_.columns + static_cast<std::size_t>(x / 2)] |= kBits[x % 2][y % 4];
  }

  void line(double x0, double y0, double x1, double y1) {
    const auto steps = std::max(1L, std::lround(std::max(std::abs(x1 - x0), std::abs(y1 - y0))));
    for (long i = 0; i <= steps; ++i) {
      const double t = static_cast<double>(i) / static_cast<double>(steps);
      dot(std::lround(x0 + t * (x1 - x0)), std::lround(y0 + t * (y1 - y0)));
    }
  }

  std::size_t row_of(long y) const { return size_.rows - 1 - static_cast<std::size_t>(y / 4); }

  std::string row(std::size_t r) const {
    std::string text;
    for (std::size_t c = 0; c < size_.columns; ++c) {
      const unsigned char bits = cells_[r * size_.columns + c];  // U+2800 and up, in UTF-8
      text += bits == 0
                  ? std::string(" ")
                  : std::string{'\xe2', static_cast<char>(0xa0 | (bits >> 6)), static_cast<char>(0x80 | (bits & 0x3f))};
    }
    return text;
  }

 private:
  PlotSize size_;
  std::vector<unsigned char> cells_;
};

// Maps a range to [0, most].
struct Scale {
  bool log = false;
  double from = 0, to = 1, most = 1;

  double operator()(double value) const {
    const double a = log ? std::log(from) : from, b = log ? std::log(to) : to, v = log ? std::log(value) : value;
    return b > a ? (v - a) / (b - a) * most : most / 2;
  }
};

std::optional<Range> range_of(const lab::Lines& lines, double lab::Point::*value) {
  std::optional<Range> range;
  for (const lab::Series& series : lines.series) {
    for (const lab::Point& p : series.points) {
      const double v = p.*value;
      if (!std::isfinite(v)) continue;
      range = range ? Range{std::min(range->first, v), std::max(range->second, v)} : Range{v, v};
    }
  }
  return range;
}

}  // namespace

std::optional<Range> y_range(const lab::Lines& lines) { return range_of(lines, &lab::Point::y); }

Picture plot(const lab::Lines& lines, const PlotSize& size, std::optional<Range> y) {
  const auto own = y_range(lines), x = range_of(lines, &lab::Point::x);
  if (!own || !x) return {"(no finite numbers)"};
  if (!y) y = own;
  Canvas canvas(size);
  const Scale across{lines.x.log && x->first > 0, x->first, x->second, static_cast<double>(canvas.width() - 1)};
  const Scale up{lines.y.log && y->first > 0, y->first, y->second, static_cast<double>(canvas.height() - 1)};
  std::vector<std::string> letters(size.rows);  // at the end of each line
  std::string legend;
  for (std::size_t s = 0; s < lines.series.size(); ++s) {
    const lab::Series& series = lines.series[s];
    const char letter = static_cast<char>('a' + s % 26);
    legend += fmt::format("{}{} {}", legend.empty() ? "" : "   ", letter, series.name);
    const lab::Point* before = nullptr;
    for (const lab::Point& p : series.points) {
      if (!std::isfinite(p.y) || !std::isfinite(up(p.y))) continue;
      const lab::Point& from = before == nullptr ? p : *before;
      canvas.line(across(from.x), up(from.y), across(p.x), up(p.y));
      before = &p;
    }
    if (before == nullptr) continue;
    const long at = std::clamp(std::lround(up(before->y)), 0L, static_cast<long>(canvas.height()) - 1);
    letters[canvas.row_of(at)] += letter;
  }
  const std::string top = lab::number_text(y->second), bottom = lab::number_text(y->first);
  const std::size_t margin = std::max(io::characters_in(top), io::characters_in(bottom));
  Picture picture;
  for (std::size_t r = 0; r < size.rows; ++r) {
    const std::string label = r == 0 ? top : r + 1 == size.rows ? bottom : "";
    picture.push_back(fmt::format("{} │{} {}", padded(label, margin, true), canvas.row(r), letters[r]));
  }
  const std::string left = lab::number_text(x->first);
  const std::string right = fmt::format("{} {}", lab::number_text(x->second), lines.x.label);
  const std::size_t between = size.columns - std::min(size.columns, io::characters_in(left));
  picture.push_back(fmt::format("{}  {}{}", padded("", margin), left, padded(right, between, true)));
  picture.push_back(fmt::format("{}  {}", padded("", margin), legend));
  return picture;
}

const char* shade(double weight) {
  constexpr const char* kDarker[] = {" ", "░", "▒", "▓", "█"};
  return std::isnan(weight) ? "?"
         : weight < 0.05    ? kDarker[0]
         : weight < 0.25    ? kDarker[1]
         : weight < 0.5     ? kDarker[2]
         : weight < 0.75    ? kDarker[3]
                            : kDarker[4];
}

Picture shades(const lab::Heatmap& map) {
  const std::size_t columns = map.columns.size();
  std::string edge;
  for (std::size_t c = 0; c < columns; ++c) edge += "──";
  Picture picture = {"┌" + edge + "┐"};
  for (std::size_t r = 0; r < map.rows.size(); ++r) {
    std::string line = "│";
    for (std::size_t c = 0; c < columns; ++c) {
      const char* mark = shade(map.values[r * columns + c]);
      line.append(mark).append(mark);
    }
    picture.push_back(line + "│");
  }
  picture.push_back("└" + edge + "┘");
  return picture;
}

Picture draw(const lab::Figure& figure, const PlotSize& size, std::optional<Range> y) {
  if (const auto* lines = std::get_if<lab::Lines>(&figure.body)) return plot(*lines, size, y);
  const auto* map = std::get_if<lab::Heatmap>(&figure.body);
  if (map != nullptr && map->from == 0 && map->to == 1 && !map->log) return shades(*map);
  return {};
}

Picture beside(const std::pair<std::string, Picture>& left, const std::pair<std::string, Picture>& right) {
  std::size_t width = io::characters_in(left.first);
  for (const std::string& line : left.second) width = std::max(width, io::characters_in(line));
  Picture picture = {padded(left.first, width + 3) + right.first};
  for (std::size_t i = 0; i < std::max(left.second.size(), right.second.size()); ++i) {
    const std::string first = i < left.second.size() ? left.second[i] : "";
    picture.push_back(padded(first, width + 3) + (i < right.second.size() ? right.second[i] : ""));
  }
  return picture;
}

}  // namespace keel::cli
