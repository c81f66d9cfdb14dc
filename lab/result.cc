#include "lab/result.h"

#include <fmt/format.h>

#include <cmath>

#include "lab/statistics.h"

namespace keel::lab {
namespace {

template <class... Case>
struct Overloaded : Case... {
  using Case::operator()...;
};
template <class... Case>
Overloaded(Case...) -> Overloaded<Case...>;  // clang 14 does not deduce it by itself

std::string csv_cell(const Table::Cell& cell) {
  if (const auto* value = std::get_if<double>(&cell)) return std::isnan(*value) ? "" : fmt::format("{}", *value);
  const auto& text = std::get<std::string>(cell);
  if (text.find_first_of(",\"\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"') quoted += '"';
    quoted += c;
  }
  quoted += '"';
  return quoted;
}

}  // namespace

double Findings::measure(const std::string& key, std::span<const double> repeats) {
  const double value = mean(repeats);
  measurements[key] = {value, standard_deviation(repeats), static_cast<std::int64_t>(repeats.size())};
  return value;
}

double Findings::exact(const std::string& key, double value) {
  measurements[key] = {.value = value, .spread = 0, .repeats = 1};
  return value;
}

Point point(double x, std::span<const double> repeats) {
  const double y = mean(repeats), sd = standard_deviation(repeats);
  return {.x = x, .y = y, .low = y - sd, .high = y + sd};
}

Point confident_point(double x, std::span<const double> repeats) {
  const double y = mean(repeats), half = confidence(repeats);
  return {.x = x, .y = y, .low = y - half, .high = y + half};
}

Point quantile_point(double x, std::span<const double> values, double low, double high) {
  return {.x = x, .y = quantile(values, 0.5), .low = quantile(values, low), .high = quantile(values, high)};
}

Table table_of(const Figure& figure) {
  Table table;
  std::visit(
      Overloaded{
          [&](const Lines& body) {
            table.columns = {"series", body.x.label, body.y.label, "low", "high"};
            for (const Series& series : body.series) {
              for (const Point& p : series.points) table.rows.push_back({series.name, p.x, p.y, p.low, p.high});
            }
          },
          [&](const Dots& body) {
            table.columns = {"category", "series", body.x.label, "low", "high"};
            for (const Series& series : body.series) {
              for (const Point& p : series.points) {
                table.rows.push_back({body.categories[static_cast<std::size_t>(p.x)], series.name, p.y, p.low, p.high});
              }
            }
          },
          [&](const Distribution& body) {
            table.columns = {"arm", "from", "to", "share"};
            for (const auto& arm : body.arms) {
              for (std::size_t i = 0; i < arm.shares.size(); ++i) {
                table.rows.push_back({arm.name, body.edges[i], body.edges[i + 1], arm.shares[i]});
              }
            }
          },
          [&](const Heatmap& body) {
            table.columns = {body.row_label + " \\ " + body.column_label};
            table.columns.insert(table.columns.end(), body.columns.begin(), body.columns.end());
            for (std::size_t i = 0; i < body.rows.size(); ++i) {
              std::vector<Table::Cell> row{body.rows[i]};
              for (std::size_t j = 0; j < body.columns.size(); ++j) {
                row.emplace_back(body.values[i * body.columns.size() + j]);
              }
              table.rows.push_back(std::move(row));
            }
          },
          [&](const Table& body) { table = body; },
      },
      figure.body);
  return table;
}

std::string to_csv(const Table& table) {
  std::string text;
  const auto line = [&](const auto& cells) {
    for (std::size_t i = 0; i < cells.size(); ++i) {
      if (i > 0) text += ',';
      text += csv_cell(cells[i]);
    }
    text += '\n';
  };
  line(table.columns);
  for (const auto& row : table.rows) line(row);
  return text;
}

std::string number_text(double value) {
  if (std::isnan(value)) return "–";
  const double size = std::abs(value);
  if (value == std::round(value) && size < 1e6) return fmt::format("{:.0f}", value);
  if (size >= 1e6 || size < 1e-4) return fmt::format("{:.2e}", value);
  return fmt::format("{:.4g}", value);
}

std::string capitalised(std::string text) {
  if (!text.empty() && text[0] >= 'a' && text[0] <= 'z') text[0] += 'A' - 'a';
  return text;
}

}  // namespace keel::lab
