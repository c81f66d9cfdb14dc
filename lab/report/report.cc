#include "lab/report/report.h"

#include <fmt/format.h>

#include <cmath>

#include "io/messages.h"
#include "keel/attention.h"

namespace keel::lab {
namespace {

std::string escaped(std::string_view text) {
  std::string html;
  for (const char c : text) {
    switch (c) {
      case '%':  // stays on the line of its number
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

std::string cell_html(const Table::Cell& cell) {
  if (const auto* number = std::get_if<double>(&cell))
    return fmt::format("<td class=\"number\">{}</td>", number_text(*number));
  return fmt::format("<td>{}</td>", escaped(std::get<std::string>(cell)));
}

std::string table_html(const Table& table) {
  std::string html = "<div class=\"wide\" tabindex=\"0\"><table><thead><tr>";
  for (const std::string& column : table.columns) html += fmt::format("<th scope=\"col\">{}</th>", escaped(column));
  html += "</tr></thead><tbody>\n";
  for (const auto& row : table.rows) {
    html += "<tr>";
    for (const auto& cell : row) html += cell_html(cell);
    html += "</tr>\n";
  }
  return html + "</tbody></table></div>\n";
}

const char* ruling_class(Ruling ruling) {
  switch (ruling) {
    case Ruling::holds:
      return "holds";
    case Ruling::holds_if:
      return "holds-if";
    case Ruling::does_not_hold:
      return "fails";
    case Ruling::undecided:
      return "undecided";
  }
  return "";
}

std::string summary_html(const std::vector<Entry>& ledger) {
  const auto button = [&](const char* id, const char* label, std::size_t n) {
    return fmt::format(
        "<button type=\"button\" class=\"count {0}\" data-filter=\"{0}\" aria-pressed=\"false\"><b>{2}</b> "
        "{1}</button>\n",
        id, label, n);
  };
  return "<div class=\"counts\" role=\"group\" aria-label=\"Show only claims that …\">\n" +
         button("holds", "hold", count(ledger, Ruling::holds)) +
         button("holds-if", "hold under a condition", count(ledger, Ruling::holds_if)) +
         button("fails", "do not hold", count(ledger, Ruling::does_not_hold)) +
         button("undecided", "undecided", count(ledger, Ruling::undecided)) + "</div>\n";
}

// The measurements a verdict was computed from.
std::string evidence_html(const Entry& entry) {
  Table table{{"measurement", "mean", "standard deviation", "repeats"}, {}};
  for (const auto& [key, m] : entry.evidence) {
    table.rows.push_back({key, m.value, m.spread, static_cast<double>(m.repeats)});
  }
  return fmt::format("<details><summary>Evidence</summary>{}</details>", table_html(table));
}

std::string ledger_html(const std::vector<Entry>& ledger) {
  std::string html =
      "<table class=\"ledger\"><thead><tr><th scope=\"col\">Verdict</th><th scope=\"col\">Claim</th><th "
      "scope=\"col\">Claimed</th><th scope=\"col\">Measured</th><th scope=\"col\">Decided by</th></tr></thead>\n";
  std::string document;
  for (const Entry& entry : ledger) {
    if (entry.document != document) {
      html += fmt::format("{}<tbody><tr class=\"document\"><th colspan=\"5\" scope=\"colgroup\">{}</th></tr>\n",
                          document.empty() ? "" : "</tbody>", escaped(entry.document));
      document = entry.document;
    }
    html += fmt::format(
        "<tr class=\"entry {0}\" id=\"{1}\"><td data-label=\"Verdict\"><span class=\"verdict {0}\">{2}</span></td><td "
        "data-label=\"Claim\">{3} <a class=\"id\" href=\"#{1}\">{1}</a></td><td data-label=\"Claimed\">{4}</td><td "
        "data-label=\"Measured\">{5} <span class=\"spread\">{6}</span>{7}</td><td data-label=\"Decided by\"><a "
        "href=\"#{8}\">{8}</a></td></tr>\n",
        ruling_class(entry.verdict.ruling), entry.id, escaped(entry.verdict.text()), escaped(entry.claim),
        escaped(entry.claimed), escaped(entry.measured), escaped(entry.spread), evidence_html(entry), entry.experiment);
  }
  return html + "</tbody></table>\n";
}

std::string figure_html(const std::string& experiment, const Figure& figure) {
  const std::string id = fmt::format("{}-{}", experiment, figure.id);
  const std::string numbers = table_html(table_of(figure));
  if (const auto* table = std::get_if<Table>(&figure.body)) {
    return fmt::format("<figure id=\"{}\"{}><h3>{}</h3><figcaption>{}</figcaption>{}</figure>\n", id,
                       table->columns.size() > 4 ? " class=\"full\"" : "", escaped(figure.title), escaped(figure.text),
                       numbers);
  }
  return fmt::format(
      "<figure id=\"{0}\"><h3>{1}</h3><div class=\"chart\" "
      "data-figure=\"{0}\"></div><figcaption>{2}</figcaption><details class=\"numbers\"><summary>The numbers "
      "({0}.csv)</summary>{3}</details></figure>\n",
      id, escaped(figure.title), escaped(figure.text), numbers);
}

std::string command(const Record& record) {
  std::string text =
      fmt::format("keel lab {} --seed {}{}{}", record.experiment->name(), record.settings.seed,
                  record.settings.full ? " --full" : "",
                  record.settings.repeats > 0 ? fmt::format(" --repeats {}", record.settings.repeats) : "");
  for (const auto& [option, value] : record.settings.options)
    text += fmt::format(" --{} {}", option, escaped(io::path_text(value)));
  return text;
}

std::string section_html(const Record& record, const std::vector<Entry>& ledger) {
  const std::string name = record.experiment->name();
  std::string html = fmt::format(
      "<section id=\"{0}\" aria-labelledby=\"{0}-title\"><h2 id=\"{0}-title\">{0}</h2><p "
      "class=\"question\">{1}</p>\n<ul class=\"findings\">",
      name, escaped(record.experiment->question()));
  for (const Findings* part : record.result.parts()) {
    for (const std::string& finding : part->findings) html += fmt::format("<li>{}</li>\n", escaped(finding));
  }
  html += "</ul>\n<div class=\"figures\">\n";
  for (const Findings* part : record.result.parts()) {
    for (const Figure& figure : part->figures) html += figure_html(name, figure);
  }
  html += "</div>\n";
  std::string decided;
  for (const Entry& entry : ledger) {
    if (entry.experiment != name) continue;
    decided +=
        fmt::format("<li><span class=\"verdict {}\">{}</span> <a href=\"#{}\">{}</a></li>\n",
                    ruling_class(entry.verdict.ruling), escaped(entry.verdict.text()), entry.id, escaped(entry.claim));
  }
  if (!decided.empty())
    html += fmt::format("<details><summary>Claims decided here</summary><ul>{}</ul></details>\n", decided);
  return html + fmt::format("<p class=\"settings\">{} Run it again: <code>{}</code></p></section>\n",
                            escaped(record.result.settings), command(record));
}

// JSON inside a script element: "</script" would end it, and after "<!--" and "<script" the next "</script>" would not.
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

// What charts.js draws: every figure but the tables, by the id of its place.
std::string data_json(const std::vector<Record>& records) {
  Json data = Json::object();
  for (const Record& record : records) {
    for (const Findings* part : record.result.parts()) {
      for (const Figure& figure : part->figures) {
        if (std::holds_alternative<Table>(figure.body)) continue;
        data[fmt::format("{}-{}", record.experiment->name(), figure.id)] = to_json(figure);
      }
    }
  }
  return script_json(data);
}

std::string contents_html(const std::vector<Record>& records) {
  std::string html = "<a href=\"#claims\">claims</a>\n";
  for (const Record& record : records) {
    html += fmt::format("<a href=\"#{0}\">{0}</a>\n", record.experiment->name());
  }
  return html;
}

// Fills each "{{name}}" of the page.
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

}  // namespace

std::string figure_page(const std::string& title, const std::string& text, const std::vector<Figure>& figures,
                        std::string_view d3) {
  std::string html;
  Json data = Json::object();
  for (const Figure& figure : figures) {
    html += figure_html("figure", figure);
    data["figure-" + figure.id] = to_json(figure);
  }
  const std::string_view page = assets::page();  // its head and its scripts
  const std::string body = R"(<body>
<header><h1>{{title}}</h1><p>{{text}}</p></header>
<main><section><div class="figures">
{{figures}}</div></section></main>
)";
  const std::string whole =
      std::string(page.substr(0, page.find("<body>"))) + body + std::string(page.substr(page.find("<script>")));
  return filled(whole, {{"title", escaped(title)},
                        {"text", escaped(text)},
                        {"style", std::string(assets::style())},
                        {"figures", html},
                        {"d3", std::string(d3)},
                        {"data", d3.empty() ? "{}" : script_json(data)},
                        {"charts", std::string(assets::charts())}});
}

std::string report(const std::vector<Record>& records, const std::vector<Entry>& ledger, std::string_view d3) {
  const bool charts = !d3.empty();
  std::string sections;
  for (const Record& record : records) sections += section_html(record, ledger);
  const Settings settings = records.empty() ? Settings{} : records.front().settings;
  return filled(assets::page(),
                {{"title", "what 1/√d_k does, measured"},
                 {"style", std::string(assets::style())},
                 {"version", version()},
                 {"profile", settings.full ? "full" : "quick"},
                 {"seed", fmt::format("{}", settings.seed)},
                 {"contents", contents_html(records)},
                 {"summary", summary_html(ledger)},
                 {"ledger", ledger_html(ledger)},
                 {"sections", sections},
                 {"notice", charts ? ""
                                   : "<p class=\"notice\">This program was built without D3, so charts are left out. "
                                     "Their numbers are under each figure. To have the charts, install Debian's "
                                     "node-d3 (or give -DKEEL_D3=file to CMake) and build again.</p>"},
                 {"d3", std::string(d3)},
                 {"data", charts ? data_json(records) : "{}"},
                 {"charts", std::string(assets::charts())}});
}

}  // namespace keel::lab
