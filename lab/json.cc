#include "lab/json.h"

#include <limits>

namespace keel::lab {
namespace {

const char* role_text(Role role) {
  return role == Role::measured ? "measured" : role == Role::theory ? "theory" : "reference";
}

Role role_from(const Json& json) {
  return json == "measured" ? Role::measured : json == "theory" ? Role::theory : Role::reference;
}

Json to_json(const Axis& axis) { return {{"label", axis.label}, {"log", axis.log}}; }

Axis axis_from(const Json& json) {
  Axis axis;
  axis.label = json.at("label");
  axis.log = json.at("log");
  return axis;
}

Json to_json(const std::vector<Series>& all) {
  Json list = Json::array();
  for (const Series& series : all) {
    Json points = Json::array();
    for (const Point& p : series.points) points.push_back({p.x, p.y, p.low, p.high});
    list.push_back({{"name", series.name}, {"role", role_text(series.role)}, {"points", std::move(points)}});
  }
  return list;
}

std::vector<Series> series_from(const Json& json) {
  std::vector<Series> all;
  for (const Json& item : json) {
    Series series{item.at("name"), {}, role_from(item.at("role"))};
    for (const Json& p : item.at("points")) series.points.push_back({p.at(0), p.at(1), p.at(2), p.at(3)});
    all.push_back(std::move(series));
  }
  return all;
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
    arms.push_back({{"name", arm.name}, {"role", role_text(arm.role)}, {"shares", arm.shares}});
  }
  return {{"kind", "distribution"}, {"x", to_json(body.x)}, {"edges", body.edges}, {"arms", std::move(arms)}};
}

// NaN, a cell that does not exist, is null.
Json body_json(const Heatmap& body) {
  return {{"kind", "heatmap"},
          {"row_label", body.row_label},
          {"column_label", body.column_label},
          {"value_label", body.value_label},
          {"rows", body.rows},
          {"columns", body.columns},
          {"values", body.values},
          {"from", body.from},
          {"to", body.to},
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

Distribution distribution_from(const Json& json) {
  Distribution body{axis_from(json.at("x")), json.at("edges"), {}};
  for (const Json& arm : json.at("arms"))
    body.arms.push_back({arm.at("name"), arm.at("shares"), role_from(arm.at("role"))});
  return body;
}

Heatmap heatmap_from(const Json& json) {
  Heatmap body{json.at("row_label"), json.at("column_label"), json.at("value_label"),
               json.at("rows"),      json.at("columns"),      {},
               json.at("from"),      json.at("to"),           json.at("log")};
  for (const Json& value : json.at("values")) {
    body.values.push_back(value.is_null() ? std::numeric_limits<double>::quiet_NaN() : value.get<double>());
  }
  return body;
}

Table table_from(const Json& json) {
  Table body{json.at("columns"), {}};
  for (const Json& cells : json.at("rows")) {
    auto& row = body.rows.emplace_back();
    for (const Json& cell : cells) {
      if (cell.is_string()) {
        row.emplace_back(cell.get<std::string>());
      } else {
        row.emplace_back(cell.get<double>());
      }
    }
  }
  return body;
}

Body body_from(const Json& json) {
  const std::string kind = json.at("kind");
  if (kind == "lines") {
    return Lines{axis_from(json.at("x")), axis_from(json.at("y")), series_from(json.at("series")), json.at("band")};
  }
  if (kind == "dots") {
    return Dots{axis_from(json.at("x")), json.at("categories"), series_from(json.at("series")), json.at("band")};
  }
  if (kind == "distribution") return distribution_from(json);
  if (kind == "heatmap") return heatmap_from(json);
  return table_from(json);
}

}  // namespace

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

Json to_json(const Findings& findings) {
  Json figures = Json::array();
  for (const Figure& figure : findings.figures) figures.push_back(to_json(figure));
  return {{"findings", findings.findings},
          {"figures", std::move(figures)},
          {"measurements", to_json(findings.measurements)}};
}

Json to_json(const Result& result) {
  Json json = {{"settings", result.settings}, {"timed", !result.times.empty()}};
  json.update(to_json(static_cast<const Findings&>(result)));
  return json;
}

Findings findings_from_json(const Json& json) {
  Findings result;
  result.findings = json.at("findings");
  for (const Json& figure : json.at("figures")) {
    result.draw(figure.at("id"), figure.at("title"), figure.at("text"), body_from(figure));
  }
  for (const auto& [key, m] : json.at("measurements").items()) {
    result.measurements[key] = {.value = m.at("value"), .spread = m.at("spread"), .repeats = m.at("repeats")};
  }
  return result;
}

Result result_from_json(const Json& json) {
  Result result;
  static_cast<Findings&>(result) = findings_from_json(json);
  result.settings = json.at("settings");
  return result;
}

}  // namespace keel::lab
