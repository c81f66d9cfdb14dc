#include "lab/result.h"

#include <fmt/format.h>

#include <cmath>

#include "lab/statistics.h"

namespace keel::lab {
namespace {

using Json = nlohmann::ordered_json;

template <class... Body>
struct Overloaded : Body... {
  using Body::operator()...;
};

Json to_json(const Axis& axis) { return {{"label", axis.label}, {"log", axis.log}}; }

Json to_json(const std::vector<Series>& all) {
  Json list = Json::array();
  for (const Series& series : all) {
    Json points = Json::array();
    for (const Point& p : series.points) points.push_back({p.x, p.y, p.low, p.high});
    list.push_back({{"name", series.name}, {"theory", series.theory}, {"points", std::move(points)}});
  }
  return list;
}

Json body_json(const Lines& body) {
  return {{"kind", "lines"},
          {"x", to_json(body.x)},
          {"y", to_json(body.y)},
          {"band", body.band},
          {"series", to_json(body.series)}};
}

Json body_json(const Dots& body) {
  return {{"kind", "dots"},
          {"x", to_json(body.x)},
          {"band", body.band},
          {"categories", body.categories},
          {"series", to_json(body.series)}};
}

Json body_json(const Distribution& body) {
  Json arms = Json::array();
  for (const auto& arm : body.arms) {
    arms.push_back({{"name", arm.name}, {"theory", arm.theory}, {"shares", arm.shares}});
  }
  return {{"kind", "distribution"}, {"x", to_json(body.x)}, {"edges", body.edges}, {"arms", std::move(arms)}};
}

Json body_json(const Heatmap& body) {
  return {{"kind", "heatmap"},     {"row_label", body.row_label}, {"column_label", body.column_label},
          {"rows", body.rows},     {"columns", body.columns},     {"value_label", body.value_label},
          {"values", body.values}, {"from", body.from},           {"to", body.to},
          {"log", body.log}};
}

Json body_json(const Table& body) {
  Json rows = Json::array();
  for (const auto& row : body.rows) {
    Json cells = Json::array();
    for (const auto& cell : row) std::visit([&](const auto& value) { cells.push_back(value); }, cell);
    rows.push_back(std::move(cells));
  }
  return {{"kind", "table"}, {"columns", body.columns}, {"rows", std::move(rows)}};
}

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

double Result::measure(const std::string& key, std::span<const double> repeats) {
  const double value = mean(repeats);
  measurements[key] = {value, standard_deviation(repeats), static_cast<std::int64_t>(repeats.size())};
  return value;
}

double Result::exact(const std::string& key, double value) {
  measurements[key] = {.value = value, .spread = 0, .repeats = 1};
  return value;
}

Point point(double x, std::span<const double> repeats) {
  const double y = mean(repeats), sd = standard_deviation(repeats);
  return {.x = x, .y = y, .low = y - sd, .high = y + sd};
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

Json to_json(const Measurements& measurements) {
  Json object = Json::object();
  for (const auto& [key, m] : measurements) {
    object[key] = {{"value", m.value}, {"spread", m.spread}, {"repeats", m.repeats}};
  }
  return object;
}

Json to_json(const Figure& figure) {
  Json json = {{"id", figure.id}, {"title", figure.title}, {"text", figure.text}};
  json.update(std::visit([](const auto& body) { return body_json(body); }, figure.body));
  return json;
}

Measurements measurements_from_json(const Json& json) {
  Measurements measurements;
  for (const auto& [key, m] : json.items()) {
    measurements[key] = {.value = m.at("value"), .spread = m.at("spread"), .repeats = m.at("repeats")};
  }
  return measurements;
}

}  // namespace keel::lab
