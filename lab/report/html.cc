#include "lab/report/html.h"

#include <fmt/format.h>

#include <algorithm>

namespace keel::lab {
namespace {

std::string cell_html(const Table::Cell& cell) {
  if (const auto* number = std::get_if<double>(&cell))
    return fmt::format("<td class=\"number\">{}</td>", with_minus(number_text(*number)));
  return fmt::format("<td>{}</td>", escaped(with_minus(std::get<std::string>(cell))));
}

bool has_numbers(const Table& table, std::size_t column) {
  return std::ranges::any_of(table.rows, [&](const auto& row) { return std::holds_alternative<double>(row[column]); });
}

// A table that is too wide for half a row.
bool is_full(const Figure& figure) {
  const auto* table = std::get_if<Table>(&figure.body);
  return table != nullptr && table->columns.size() > 4;
}

std::string figure_html(const std::string& experiment, const Figure& figure, bool full) {
  const std::string id = fmt::format("{}-{}", experiment, figure.id);
  std::string body = table_html(table_of(figure));
  if (!std::holds_alternative<Table>(figure.body)) {
    body = fmt::format(
        "<div class=\"chart\" data-figure=\"{0}\"></div><details class=\"numbers\"><summary>The numbers "
        "({0}.csv)</summary>{1}</details>",
        id, body);
  }
  return fmt::format("<figure id=\"{}\"{}><h4>{}</h4><figcaption>{}</figcaption>{}</figure>\n", id,
                     full ? " class=\"full\"" : "", escaped(figure.title), escaped(figure.text), body);
}

}  // namespace

std::string with_minus(std::string_view text) {
  std::string typeset;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool begins = i == 0 || text[i - 1] == ' ' || text[i - 1] == '[';
    const bool number = i + 1 < text.size() && text[i + 1] >= '0' && text[i + 1] <= '9';
    if (text[i] == '-' && begins && number)
      typeset += "−";
    else
      typeset += text[i];
  }
  return typeset;
}

std::string escaped(std::string_view text) {
  std::string html;
  for (const char c : text) {
    switch (c) {
      case '%':
        if (html.ends_with(' ')) html.replace(html.size() - 1, 1, "&nbsp;");
        html += c;
        break;
      case '&':
        html += "&amp;";
        break;
      case '<':
        html += "&lt;";
        break;
      case '>':
        html += "&gt;";
        break;
      case '"':
        html += "&quot;";
        break;
      default:
        html += c;
    }
  }
  return html;
}

std::string table_html(const Table& table) {
  std::string html = "<div class=\"wide\" tabindex=\"0\"><table><thead><tr>";
  for (std::size_t i = 0; i < table.columns.size(); ++i) {
    html += fmt::format("<th scope=\"col\"{}>{}</th>", has_numbers(table, i) ? " class=\"number\"" : "",
                        escaped(table.columns[i]));
  }
  html += "</tr></thead><tbody>\n";
  for (const auto& row : table.rows) {
    html += "<tr>";
    for (const auto& cell : row) html += cell_html(cell);
    html += "</tr>\n";
  }
  return html + "</tbody></table></div>\n";
}

std::string figures_html(const std::string& experiment, const std::vector<const Figure*>& figures) {
  std::string html;
  bool left = true;  // the next one begins a row
  for (std::size_t i = 0; i < figures.size(); ++i) {
    const bool full = is_full(*figures[i]) || (left && (i + 1 == figures.size() || is_full(*figures[i + 1])));
    html += figure_html(experiment, *figures[i], full);
    left = full || !left;
  }
  return html;
}

std::string script_json(const Json& data) {
  std::string text;
  for (const char c : data.dump()) {
    if (c == '<')
      text += "\\u003c";
    else
      text += c;
  }
  return text;
}

std::string filled(std::string_view page, const std::vector<std::pair<std::string_view, std::string>>& parts) {
  std::string html;
  while (!page.empty()) {
    const std::size_t open = page.find("{{");
    html += page.substr(0, open);
    if (open == std::string_view::npos) break;
    const std::size_t close = page.find("}}", open);
    const std::string_view name = page.substr(open + 2, close - open - 2);
    for (const auto& [key, text] : parts) {
      if (key == name) html += text;
    }
    page.remove_prefix(close + 2);
  }
  return html;
}

}  // namespace keel::lab
