#include "lab/report/picture.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "lab/report/recorded.h"

namespace keel::lab {
namespace {

constexpr const char *kUnscaled = "#d55e00", *kScaled = "#0072b2";        // curves
constexpr const char *kUnscaledInk = "#ae4700", *kScaledInk = "#00609a";  // words
constexpr double kWidth = 900, kHeight = 276, kTop = 66, kBottom = 246;   // of the picture, and of its panels

const Figure* find(const std::vector<Record>& records, const std::string& experiment, const std::string& id) {
  for (const Record& record : records) {
    if (record.experiment->name() != experiment) continue;
    for (const Figure& figure : record.result.figures) {
      if (figure.id == id) return &figure;
    }
  }
  return nullptr;
}

// "√d_k" with a small k below the line.
std::string subscripted(const std::string& words) {
  const std::size_t at = words.find("d_k");
  if (at == std::string::npos) return words;
  const std::string rest = words.substr(at + 3);
  return words.substr(0, at) + "d<tspan dy=\"3\" font-size=\"75%\">k</tspan>" +
         (rest.empty() ? "" : "<tspan dy=\"-3\">" + subscripted(rest) + "</tspan>");
}

std::string text(double x, double y, const std::string& words, const std::string& more = "") {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" {}>{}</text>\n", x, y, more, subscripted(words));
}

// One series of Lines between x and x + width, its axes logarithmic where the figure's are.
class Panel {
 public:
  Panel(const Lines& lines, double x, double width) : lines_(lines), x_(x), width_(width) {
    for (const Series& series : lines.series) {
      for (const Point& p : series.points) {
        x_low_ = std::min(x_low_, along(p.x, lines.x));
        x_high_ = std::max(x_high_, along(p.x, lines.x));
        y_low_ = std::min(y_low_, along(p.y, lines.y));
        y_high_ = std::max(y_high_, along(p.y, lines.y));
      }
    }
  }

  std::string curve(const std::string& name, const char* colour) const {
    for (const Series& series : lines_.series) {
      if (series.name != name) continue;
      std::string path;
      for (const Point& p : series.points)
        path += fmt::format("{}{:.1f},{:.1f}", path.empty() ? "M" : "L", x_of(p.x), y_of(p.y));
      return fmt::format("<path d=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"2.5\"/>\n", path, colour);
    }
    return "";
  }

  // The name of a curve, in its colour, `dx` and `dy` away from its first point beyond this share of the width.
  struct Label {
    const char *words, *colour, *anchor;
    double share, dx, dy;
  };
  std::string label(const std::string& name, const Label& label) const {
    for (const Series& series : lines_.series) {
      if (series.name != name) continue;
      for (const Point& p : series.points) {
        if (x_of(p.x) < x_ + label.share * width_ - 0.1) continue;
        return text(x_of(p.x) + label.dx, y_of(p.y) + label.dy, label.words,
                    fmt::format("text-anchor=\"{}\" font-weight=\"600\" fill=\"{}\"", label.anchor, label.colour));
      }
    }
    return "";
  }

  std::string y_mark(double value) const {
    return fmt::format("<path d=\"M{0:.1f},{2:.1f}H{1:.1f}\" stroke=\"#d5dae0\"/>\n", x_, x_ + width_, y_of(value)) +
           text(x_ - 6, y_of(value) + 4, number_text(value), "text-anchor=\"end\"");
  }
  std::string x_mark(double value) const {
    return text(x_of(value), kBottom + 16, number_text(value), "text-anchor=\"middle\"");
  }
  double x_of(double x) const { return x_ + (along(x, lines_.x) - x_low_) / (x_high_ - x_low_) * width_; }
  double y_of(double y) const {
    return kBottom - (along(y, lines_.y) - y_low_) / (y_high_ - y_low_) * (kBottom - kTop);
  }

 private:
  static double along(double value, const Axis& axis) { return axis.log ? std::log(value) : value; }

  const Lines& lines_;
  double x_, width_;
  double x_low_ = INFINITY, x_high_ = -INFINITY, y_low_ = INFINITY, y_high_ = -INFINITY;
};

// The weights of recorded_rows() at d_k = 64: 16 rows over 16 keys.
std::string map(const Json& weights, double x, double side, std::array<int, 3> ink) {
  const std::size_t n = 16;
  const double cell = side / static_cast<double>(n);
  std::string svg;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const double share = 0.05 + 0.95 * weights[i].get<double>();
    const auto mixed = [&](int to) { return static_cast<int>(std::lround(255 + (to - 255) * share)); };
    svg += fmt::format(
        "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" fill=\"#{:02x}{:02x}{:02x}\"/>\n",
        x + static_cast<double>(i % n) * cell, kTop + static_cast<double>(i / n) * cell, cell - 0.8, cell - 0.8,
        mixed(ink[0]), mixed(ink[1]), mixed(ink[2]));
  }
  return svg;
}

}  // namespace

std::string picture(const std::vector<Record>& records) {
  const Figure *law = find(records, "variance", "law"), *loss = find(records, "ablation", "loss-d64");
  if (law == nullptr || loss == nullptr) return "";
  const Panel scores(std::get<Lines>(law->body), 50, 210), training(std::get<Lines>(loss->body), 680, 205);
  const Json maps = recorded_rows(records.front().settings.seed).at("maps").at("64");
  const double side = 150;
  const char *title = "font-weight=\"600\" font-size=\"15\" fill=\"#1b1f24\"", *middle = "text-anchor=\"middle\"";
  const std::string unscaled = fmt::format("{} font-weight=\"600\" fill=\"{}\"", middle, kUnscaledInk),
                    scaled = fmt::format("{} font-weight=\"600\" fill=\"{}\"", middle, kScaledInk);
  return fmt::format(
             "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" height=\"{1}\" "
             "font-family=\"system-ui, Noto Sans, DejaVu Sans, sans-serif\" font-size=\"12.5\" fill=\"#5b6570\" "
             "role=\"img\">\n"
             "<title>As d_k grows, scores spread, weights collapse to one key and training takes longer; divided by "
             "√d_k, none of that happens</title>\n<rect width=\"{0}\" height=\"{1}\" rx=\"8\" fill=\"#ffffff\"/>\n",
             kWidth, kHeight) +
         text(16, 24, "1. Scores spread", title) + text(16, 43, "variance of q·k, against d_k") + scores.y_mark(1) +
         scores.y_mark(10) + scores.y_mark(100) + scores.y_mark(1000) + scores.x_mark(1) + scores.x_mark(64) +
         scores.x_mark(1024) + scores.curve("q·k", kUnscaled) + scores.curve("q·k / √d_k", kScaled) +
         scores.label("q·k", {"unscaled", kUnscaledInk, "end", 0.6, -8, -8}) +
         scores.label("q·k / √d_k", {"divided by √d_k", kScaledInk, "end", 1, 0, -9}) +
         text(295, 24, "2. Softmax picks one key", title) + text(295, 43, "weights of 16 rows over 16 keys, d_k = 64") +
         map(maps.at("unscaled").at("weights"), 295, side, {0xd5, 0x5e, 0x00}) +
         map(maps.at("scaled").at("weights"), 295 + side + 20, side, {0x00, 0x72, 0xb2}) +
         text(295 + side / 2, kTop + side + 20, "unscaled", unscaled) +
         text(295 + 1.5 * side + 20, kTop + side + 20, "divided by √d_k", scaled) +
         text(645, 24, "3. Training takes longer", title) + text(645, 43, "loss against steps, d_k = 64") +
         training.y_mark(0.01) + training.y_mark(0.1) + training.y_mark(1) + training.x_mark(0) + training.x_mark(100) +
         training.x_mark(200) + training.x_mark(300) + training.curve("unscaled", kUnscaled) +
         training.curve("divided by √d_k", kScaled) +
         training.label("unscaled", {"unscaled", kUnscaledInk, "start", 0.5, 8, -4}) +
         training.label("divided by √d_k", {"÷ √d_k", kScaledInk, "end", 1, 0, -10}) + "</svg>\n";
}

}  // namespace keel::lab
